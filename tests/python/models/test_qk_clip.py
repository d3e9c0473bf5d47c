"""QK-clip of any module: maxima over batches, checkpoints, compiled code, resumed runs, and refusals."""

import copy
import itertools

import pytest
import torch
import transformers as hf
from families import GQA
from refusals import assert_refused
from torch import nn
from torch.utils.checkpoint import checkpoint

import isentrope
import isentrope.hf
from isentrope.models import projections


@pytest.fixture(autouse=True)
def clips_end(monkeypatch):
    """Removes each clip after its test, because clips replace torch's function."""
    clips, start = [], isentrope.QKClip.__init__

    def recorded(clip, *args, **options):
        start(clip, *args, **options)
        clips.append(clip)

    monkeypatch.setattr(isentrope.QKClip, "__init__", recorded)
    yield
    for clip in clips:
        clip.remove()


class Attention(nn.Module):
    """Grouped heads with projections in one layer or two, and one of two attention functions."""

    def __init__(self, heads=4, kv_heads=2, size=8, function=isentrope.attention, **options):
        super().__init__()
        self.sizes = [count * size for count in (heads, kv_heads, kv_heads)]
        self.qkv = nn.Linear(32, sum(self.sizes))
        self.size, self.function, self.options = size, function, options

    def heads(self, x):
        return [part.unflatten(-1, (-1, self.size)).transpose(1, 2) for part in self.qkv(x).split(self.sizes, -1)]

    def forward(self, x):
        return self.function(*self.heads(x), **self.options).transpose(1, 2).flatten(2)

    def logits(self, x):
        with torch.no_grad():
            q, k, _ = self.heads(x)
        return q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT / self.size**0.5


def blocks(count=2, **options):
    torch.manual_seed(5)
    model = nn.Sequential(*(Attention(**options) for _ in range(count)))
    for block in model:
        nn.init.normal_(block.qkv.weight), nn.init.normal_(block.qkv.bias)
    return model


NAMED = projections.named(qkv="qkv", head_dim=8, kv_heads=2)


def test_a_head_below_the_threshold_keeps_its_rows_bit_for_bit():
    model, x = blocks(1), torch.randn(2, 9, 32)
    largest = model[0].logits(x).amax((0, 2, 3))
    tau = float(largest.sort().values[1:3].mean())
    clip = isentrope.QKClip(model, tau, projections=NAMED)
    before, logits = copy.deepcopy(model.state_dict()), model[0].logits(x)
    model(x)
    clip.step()
    torch.testing.assert_close(clip.largest, largest)
    gamma = (tau / largest).clamp(max=1)
    torch.testing.assert_close(model[0].logits(x), gamma[:, None, None] * logits)
    assert model[0].logits(x).amax() <= tau * 1.0001
    for key, tensor in model.state_dict().items():
        below = torch.cat([(gamma == 1).repeat_interleave(8), torch.ones(32, dtype=torch.bool)])
        assert torch.equal(tensor[below], before[key][below]) and not torch.equal(tensor[~below], before[key][~below])
    assert clip.clipped.tolist() == (gamma < 1).long().tolist() and clip.clipped.sum() == 2
    after = copy.deepcopy(model.state_dict())
    clip.step()  # no forward pass since
    assert all(torch.equal(tensor, after[key]) for key, tensor in model.state_dict().items())


def test_maxima_are_those_of_all_batches_and_of_training_alone():
    model, batches = blocks(1), [torch.randn(2, 9, 32) * scale for scale in (1, 3, 2)]
    clip = isentrope.QKClip(model, 1e9, projections=NAMED)
    for x in batches:
        model(x).sum().backward()
    model.eval()
    model(100 * batches[0])
    isentrope.attention(*(torch.full((1, 4, 3, 8), 1e4) for _ in "qkv"))  # outside of any module
    clip.step()
    torch.testing.assert_close(clip.largest, torch.stack([model[0].logits(x).amax((0, 2, 3)) for x in batches]).amax(0))
    assert list(clip.heads()) == [f"qk_clip/0/head{head}/max_logit" for head in range(4)]


class Twice(nn.Module):
    def __init__(self, function, checkpointed, use_reentrant=False):
        super().__init__()
        self.inside = blocks(2, kv_heads=4, function=function, is_causal=True)
        self.checkpointed, self.use_reentrant = checkpointed, use_reentrant

    def forward(self, x):
        for block in self.inside:
            x = checkpoint(block, x, use_reentrant=self.use_reentrant) if self.checkpointed else block(x)
        return x


def torchs_function(*qkv, **options):
    return torch.nn.functional.scaled_dot_product_attention(*qkv, **options)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_accumulation_and_checkpoints_change_nothing(use_reentrant):
    batches = [torch.randn(4, 9, 32) * scale for scale in (1, 3)]
    clips, models = [], []
    for checkpointed, parts in ((False, 1), (True, 4)):
        model = Twice(torchs_function, checkpointed, use_reentrant)
        clip = isentrope.QKClip(model, 3.0, projections=projections.named(qkv="qkv", head_dim=8))
        for batch in batches:
            for x in batch.chunk(parts):
                model(x.requires_grad_()).square().sum().backward()
            clip.step()
        clips.append(clip), models.append(model)
    assert clips[0].clipped.any() and torch.equal(clips[0].clipped, clips[1].clipped)
    torch.testing.assert_close(clips[1].largest, clips[0].largest)
    for a, b in zip(models[0].parameters(), models[1].parameters()):
        torch.testing.assert_close(a, b)


def test_an_optimizer_may_call_it():
    torch.manual_seed(1)
    x, models = torch.randn(2, 9, 32), [blocks(), blocks()]
    for model, hooked in zip(models, (False, True)):
        optimizer = torch.optim.AdamW(model.parameters())
        clip = isentrope.QKClip(model, 2.0, projections=NAMED)
        if hooked:
            optimizer.register_step_post_hook(clip.step)
        for _ in range(2):
            model(x).square().sum().backward()
            optimizer.step()
            hooked or clip.step()
            optimizer.zero_grad()
        assert clip.clipped.any()
    for a, b in zip(*(model.parameters() for model in models)):
        assert torch.equal(a, b)


class TitanAttention(nn.Module):
    """As torchtitan has it: heads in four layers, and torch's function in a module inside."""

    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv = (nn.Linear(32, heads * 8, bias=False) for heads in (4, 2, 2))
        self.inner_attention = Inner()

    def forward(self, x):
        return self.inner_attention(*(layer(x).unflatten(-1, (-1, 8)).transpose(1, 2) for layer in (self.wq, self.wk, self.wv)))


class Inner(nn.Module):
    def forward(self, q, k, v):
        return torchs_function(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2)


def test_a_function_finds_the_projections_of_other_attention_modules():
    def find(name, module):
        return projections.separate(module.wq, module.wk, 8) if isinstance(module, TitanAttention) else None

    torch.manual_seed(1)
    model, x = nn.Sequential(TitanAttention()), 3 * torch.randn(2, 9, 32)
    clip = isentrope.QKClip(model, 0.5, projections=find)
    q, k = (layer(x).detach().unflatten(-1, (-1, 8)).transpose(1, 2) for layer in (model[0].wq, model[0].wk))
    logits = (q @ k.repeat_interleave(2, 1).mT / 8**0.5).masked_fill(~torch.ones(9, 9, dtype=torch.bool).tril(), -torch.inf)
    model(x)
    keys = model[0].wk.weight.clone()
    clip.step()
    torch.testing.assert_close(clip.largest, logits.amax((0, 2, 3)))
    gamma = (0.5 / clip.largest).clamp(max=1)[:, None, None]
    torch.testing.assert_close(model[0].wq(x).unflatten(-1, (-1, 8)).transpose(1, 2), gamma * q)
    assert clip.clipped.all() and torch.equal(model[0].wk.weight, keys)


QUICK = {(isentrope.attention, False, "aot_eager"), (torchs_function, True, "aot_eager")}
WAYS = itertools.product((isentrope.attention, torchs_function), (False, True), ("aot_eager", "inductor"))


@pytest.mark.parametrize(
    "function, checkpointed, backend", [way if way in QUICK else pytest.param(*way, marks=pytest.mark.long) for way in WAYS]
)
def test_compiled_without_a_graph_break(function, checkpointed, backend):
    torch._dynamo.reset()
    model, x = Twice(function, checkpointed), torch.randn(2, 9, 32)
    of_qkv = projections.named(qkv="qkv", head_dim=8)
    compiled = copy.deepcopy(model)
    clip = isentrope.QKClip(model, 3.0, projections=of_qkv)
    for _ in range(2):
        model(x).sum().backward()
        clip.step()
    clip_of_compiled = isentrope.QKClip(compiled, 3.0, projections=of_qkv)
    # Required by torch for compiled checkpoints: repeating a forward pass changes no maximum.
    with torch._dynamo.config.patch(skip_fwd_side_effects_in_bwd_under_checkpoint=True):
        run = torch.compile(compiled, fullgraph=True, backend=backend)
        for _ in range(2):
            run(x).sum().backward()
            clip_of_compiled.step()
    assert clip.clipped.any()
    torch.testing.assert_close(clip_of_compiled.largest, clip.largest)
    assert torch.equal(clip_of_compiled.clipped, clip.clipped)
    for a, b in zip(model.parameters(), compiled.parameters()):
        torch.testing.assert_close(a, b)


def test_torchs_module_and_function_are_read_and_left():
    torchs_function, x = torch.nn.functional.scaled_dot_product_attention, torch.randn(2, 9, 32)
    for size in (None, 20):
        torch.manual_seed(1)
        model = nn.MultiheadAttention(32, 4, batch_first=True, kdim=size, vdim=size).train()
        keys = x if size is None else torch.randn(2, 9, 20)
        want = model(x, keys, keys, need_weights=True, average_attn_weights=False)[1].log()
        clip = isentrope.QKClip(model, 0.05)
        model(x, keys, keys, need_weights=False)
        clip.step()
        got = model(x, keys, keys, need_weights=True, average_attn_weights=False)[1].log()
        gamma = (0.05 / clip.largest).clamp(max=1)[:, None, None]
        want = (gamma * (want - want.mean(-1, keepdim=True))).log_softmax(-1)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert (clip.largest > 0.05).all()
        clip.remove(), clip.remove()
        assert torch.nn.functional.scaled_dot_product_attention is torchs_function


@pytest.mark.parametrize("size", [None, 20])
def test_the_further_keys_of_torchs_module(size):
    torch.manual_seed(1)
    x, tau = torch.randn(2, 9, 32), 0.05
    model = nn.MultiheadAttention(32, 4, batch_first=True, add_bias_kv=True, add_zero_attn=True, kdim=size, vdim=size)
    keys = x if size is None else torch.randn(2, 9, size)

    def logits():  # relative to the logit 0 of the last key, that of add_zero_attn
        weights = model(x, keys, keys, average_attn_weights=False)[1].log()
        return weights - weights[..., -1:]

    model.bias_k.data *= 30  # the largest logits are those of the bias
    before, values = logits(), model.bias_v.clone()
    clip = isentrope.QKClip(model, tau)
    model(x, keys, keys, need_weights=False)
    clip.step()
    torch.testing.assert_close(clip.largest, before.amax((0, 2, 3)))
    assert (before[..., :-2].amax((0, 2, 3)) < clip.largest).all() and (clip.largest > tau).all()
    gamma = (tau / clip.largest)[:, None, None]
    torch.testing.assert_close(logits(), gamma * before, rtol=1e-4, atol=1e-5)
    assert torch.equal(model.bias_v, values)


@pytest.mark.parametrize("tau", [1.0, 10.0])  # below the cap and above it
def test_logits_are_read_before_the_soft_cap(tau):
    torch.manual_seed(2)
    model, x = blocks(1, soft_cap=3.0), torch.randn(2, 9, 32)
    model[0].qkv.weight.data *= 1.5
    clip = isentrope.QKClip(model, 1e9, projections=NAMED)
    model(0.1 * x)
    clip.step()
    torch.testing.assert_close(clip.largest, model[0].logits(0.1 * x).amax((0, 2, 3)))
    clip = isentrope.QKClip(model, tau, projections=NAMED)
    run = torch.compile(model, fullgraph=True, backend="aot_eager") if tau == 1.0 else model
    assert model[0].logits(x).amax() > 40  # the cap holds these logits at 3, which reads as 26
    for _ in range(8):
        run(x)
        clip.step()
    assert 0.95 * tau < model[0].logits(x).amax() < 1.001 * tau


@pytest.mark.parametrize("options", [{"bias": torch.zeros(9, 9)}, {"rule": "ssmax(s=1,b=0,where=pre_cap) * xai_temperature(len=4)"}])
def test_a_soft_cap_that_hides_the_logits_is_refused(options):
    model = blocks(1, soft_cap=3.0, **options)
    clip = isentrope.QKClip(model, projections=NAMED)
    assert_refused("a call with a soft-cap must have", model, torch.randn(2, 9, 32))
    clip.remove()
    model(torch.randn(2, 9, 32))


def test_a_resumed_run_goes_on():
    batches = [torch.randn(2, 9, 32) for _ in range(2)]

    def run(model, clip, x):
        model(x).sum().backward()

    alone, parted = blocks(), blocks()
    clip = isentrope.QKClip(alone, 2.0, projections=NAMED)
    for x in batches:
        run(alone, clip, x)
    clip.step()
    first = isentrope.QKClip(parted, 2.0, projections=NAMED)
    run(parted, first, batches[0])
    state, resumed = first.state_dict(), blocks()
    second = isentrope.QKClip(resumed, 2.0, projections=NAMED)
    second.load_state_dict(state)
    run(resumed, second, batches[1])
    second.step()
    assert torch.equal(second.largest, clip.largest) and torch.equal(second.clipped, clip.clipped)
    for a, b in zip(alone.parameters(), resumed.parameters()):
        assert torch.equal(a, b)
    with pytest.raises(ValueError, match=r"state must be that of \['0'\]; got \['0', '1'\]"):
        isentrope.QKClip(blocks(1), projections=NAMED).load_state_dict(state)


def test_heads_with_nan_or_infinite_logits_are_left_alone():
    model = blocks(1)
    clip = isentrope.QKClip(model, 1e-3, projections=NAMED)
    before = copy.deepcopy(model.state_dict())
    model(torch.full((1, 3, 32), torch.nan)), clip.step()
    model(torch.full((1, 3, 32), 1e30)), clip.step()
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    model(torch.randn(0, 3, 32)), clip.step()
    assert (clip.largest == -torch.inf).all() and clip.summary()["qk_clip/clipped"] == 0
    clip.tau, clipped = 41.0, clip.clipped.clone()  # torch divides it by itself to 0.99999994
    model(0.1 * torch.randn(1, 3, 32)), clip.step()
    assert torch.equal(clip.clipped, clipped)


class Normed(Attention):
    def __init__(self, name, norm):
        super().__init__()
        place, _, leaf = name.rpartition(".")
        if place:
            setattr(self, place, nn.Module())
        setattr(self.get_submodule(place), leaf, norm)


NORMS = ["q_norm", "norm_k", "query_layernorm", "norm_query", "qk_layer_norms", "ln_q", "k_ln", "q_b_norm", "inner.k_norm"]


@pytest.mark.parametrize("name", NORMS)
def test_norms_are_refused_by_their_names(name):
    with pytest.raises(ValueError, match=f"must not be normalised after their projections.*got {name}: leave"):
        isentrope.QKClip(Normed(name, nn.RMSNorm(8)), projections=NAMED)
    isentrope.QKClip(Normed(name, nn.Identity()), projections=NAMED)


def test_norms_of_other_vectors_are_none_of_queries():
    for name in ("q_a_layernorm", "kv_a_layernorm", "norm", "o_norm"):
        isentrope.QKClip(Normed(name, nn.RMSNorm(8)), projections=NAMED)
    model = Normed("indexer.k_norm", nn.RMSNorm(8))
    model.indexer.wk = nn.Linear(32, 8)
    isentrope.QKClip(model, projections=NAMED)


def test_what_cannot_be_scaled_is_refused():
    assert_refused("got none. Pass projections=", isentrope.QKClip, nn.Linear(3, 3))
    assert_refused("tau must be positive", isentrope.QKClip, blocks(), 0, projections=NAMED)
    with pytest.raises(ValueError, match="whole heads of 7; got 64"):
        isentrope.QKClip(blocks(), projections=projections.named(qkv="qkv", head_dim=7))
    assert_refused("names must be q and k, or qkv", projections.named, q="wq", head_dim=7)
    normed = blocks(1)
    nn.utils.parametrizations.weight_norm(normed[0].qkv)
    assert_refused("merge adapters, parametrizations", isentrope.QKClip, normed, projections=NAMED)
    shared = blocks()
    shared[1].qkv.weight = shared[0].qkv.weight
    assert_refused("one attention; got one of 1 twice", isentrope.QKClip, shared, projections=NAMED)
    assert not shared[0]._forward_hooks, "a refused model is not read"
    eager = hf.AutoModelForCausalLM.from_config(hf.LlamaConfig(**GQA, attn_implementation="eager")).train()
    clip = isentrope.QKClip(eager)
    eager(torch.randint(3, 61, (1, 8)))
    assert_refused('attn_implementation="isentrope" or "sdpa"', clip.step)
    assert_refused("on the meta device", isentrope.QKClip, blocks(1).to("meta"), projections=NAMED)
