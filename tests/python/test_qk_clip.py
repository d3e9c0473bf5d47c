"""QK-clip: logits after a step follow the formula, for every layout of projections, eager and compiled."""

import copy

import pytest
import torch
import transformers as hf
from families import CAUSAL, ENCODERS, GQA, SIZES
from torch import nn
from torch.utils.checkpoint import checkpoint

import isentrope
import isentrope.hf
from isentrope.hf.recording import observing
from isentrope.models import projections, qk_clip

MLA = SIZES | dict(q_lora_rank=12, kv_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6, n_routed_experts=2,
                   num_experts_per_tok=1, n_group=1, topk_group=1, moe_intermediate_size=16, first_k_dense_replace=2)  # fmt: skip
MODELS = {
    "llama": lambda: hf.LlamaConfig(**GQA, attention_bias=True),
    "llama, own keys": lambda: hf.LlamaConfig(**GQA | {"num_key_value_heads": 4}, attention_bias=True),
    "phi3": lambda: hf.Phi3Config(**GQA),
    "deepseek_v3": lambda: hf.DeepseekV3Config(**MLA),
    "deepseek_v3, no query latent": lambda: hf.DeepseekV3Config(**MLA | {"q_lora_rank": None}),
    "gpt2": CAUSAL["gpt2"],
    "gpt_neox": CAUSAL["gpt_neox"],
    "gpt_oss": CAUSAL["gpt_oss"],
}
ENCODING = ("bert", "modernbert", "t5")


def gpt2_with_encoder():
    config = CAUSAL["gpt2"]()
    config.add_cross_attention = True
    return config


def falcon(**layout):
    return hf.FalconConfig(**SIZES, alibi=False, **layout)


FALCONS = {
    "a key a head": lambda: falcon(multi_query=False, new_decoder_architecture=False),
    "one key": lambda: falcon(multi_query=True, new_decoder_architecture=False),
    "grouped keys": lambda: falcon(new_decoder_architecture=True, num_kv_heads=2),
}


def model_of(name):
    torch.manual_seed(3)
    if name in ENCODERS:
        config, kind = ENCODERS[name]()
        return kind(config).double().train()
    # The grouped products of experts have no float64.
    return hf.AutoModelForCausalLM.from_config(MODELS[name](), experts_implementation="eager").double().train()


def largen(model, by=6.0):
    for parameter in model.parameters():
        parameter.data *= by if parameter.dim() == 2 else 1.0


class Calls:
    """Records the arguments of every attention module's call, and its unmasked logits when called with them again."""

    def __init__(self, modules):
        self.inputs = {}
        for module in modules:
            module.register_forward_pre_hook(self._keep, with_kwargs=True)

    def _keep(self, module, args, kwargs):
        self.inputs.setdefault(module, (args, kwargs))

    def logits(self, module):
        found = []

        def see(_, q, k, options):
            scale = options["scale"] or q.shape[-1] ** -0.5
            found.append(scale * q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT)

        args, kwargs = self.inputs[module]
        with observing(see), torch.no_grad():
            module(*args, **kwargs)
        return found[0]


def gammas(clip, name, tau):
    """Returns the factor of every head of a module, from the clip's report."""
    largest = [value for key, value in clip.heads().items() if key.startswith(f"qk_clip/{name}/head")]
    return torch.tensor([min(1.0, tau / value) for value in largest], dtype=torch.float64)


@pytest.mark.parametrize("name", [*MODELS, *ENCODING])
def test_the_logits_after_a_step_are_those_of_the_formula(name):
    model = model_of(name)
    largen(model)
    model.set_attn_implementation("isentrope")
    clip = isentrope.QKClip(model, tau=0.02)
    modules = dict(model.named_modules())
    attentions = {key: modules[key] for key in clip.state_dict()["largest"]}
    calls, tokens = Calls(attentions.values()), torch.randint(3, 61, (2, 20))
    model(tokens, **({} if name in ENCODING else {"use_cache": False}))
    before = {key: calls.logits(module) for key, module in attentions.items()}
    values = {key: module for key, module in model.state_dict().items()}
    values = copy.deepcopy(values)
    clip.step()
    clipped = 0
    for key, module in attentions.items():
        gamma = gammas(clip, key, 0.02)
        clipped += int((gamma < 1).sum())
        # ModernBERT rotates in float32.
        exact = {"rtol": 1e-5, "atol": 1e-7} if name == "modernbert" else {"rtol": 1e-9, "atol": 1e-12}
        torch.testing.assert_close(calls.logits(module), gamma[:, None, None] * before[key], **exact)
    assert clipped == clip.summary()["qk_clip/clipped"] >= len(attentions)
    # Only rows of queries and keys change: values, latent projections and the shared rotated key do not.
    touched = {key.rsplit(".", 2)[1] for key, x in model.state_dict().items() if not torch.equal(x, values[key])}
    assert touched <= {"q_proj", "k_proj", "qkv_proj", "q_b_proj", "kv_b_proj", "c_attn", "query_key_value", "query", "key", "Wqkv",
                       "q", "k"}, touched  # fmt: skip
    assert ("k_proj" in touched) == (name == "llama, own keys")


def logits_of_torchs_calls(monkeypatch):
    """A list that gets the unmasked logits of each call of torch's function."""
    own, found = torch.nn.functional.scaled_dot_product_attention, []

    def see(q, k, *args, **options):
        found.append(q @ k.expand(-1, q.shape[1] // k.shape[1] * k.shape[1], -1, -1).mT / q.shape[-1] ** 0.5)
        return own(q, k, *args, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", see)
    return found


@pytest.mark.parametrize("layout", FALCONS)
def test_every_layout_of_falcon_is_read_through_torchs_function(layout, monkeypatch):
    torch.manual_seed(3)
    model = hf.AutoModelForCausalLM.from_config(FALCONS[layout](), attn_implementation="sdpa").double().train()
    largen(model)
    tokens, causal = torch.randint(3, 61, (2, 20)), torch.ones(20, 20, dtype=torch.bool).tril()
    clip, found = isentrope.QKClip(model, tau=0.02), logits_of_torchs_calls(monkeypatch)
    attention, inputs = model.transformer.h[0].self_attention, []
    attention.register_forward_pre_hook(lambda *call: inputs.append(call[1:]), with_kwargs=True)
    model(tokens, use_cache=False)
    before = found[0]
    clip.step()
    largest = before.masked_fill(~causal, -torch.inf).amax((0, 2, 3))
    torch.testing.assert_close(clip.largest[:4], largest)
    gamma = (0.02 / largest).clamp(max=1)[:, None, None]
    assert (gamma < 1).any()
    with torch.no_grad():
        attention(*inputs[0][0], **inputs[0][1])
    torch.testing.assert_close(found[-1], gamma * before, rtol=1e-9, atol=1e-12)


def test_cross_attention_of_gpt2_is_scaled_by_its_own_projections(monkeypatch):
    torch.manual_seed(3)
    model = hf.AutoModelForCausalLM.from_config(gpt2_with_encoder(), attn_implementation="sdpa").double().train()
    largen(model)
    encoded, tokens = torch.randn(2, 7, 32, dtype=torch.float64), torch.randint(3, 61, (2, 20))
    attention, inputs = model.transformer.h[0].crossattention, []
    attention.register_forward_pre_hook(lambda *call: inputs.append(call[1:]), with_kwargs=True)
    clip, found = isentrope.QKClip(model, tau=0.02), logits_of_torchs_calls(monkeypatch)
    model(tokens, encoder_hidden_states=encoded, use_cache=False)
    before, values = found[1], attention.c_attn.weight[:, 32:].clone()  # the second call of the first layer
    clip.step()
    largest = {name: value for name, value in clip.heads().items() if "h.0.crossattention" in name}
    torch.testing.assert_close(torch.tensor(list(largest.values()), dtype=torch.float64), before.amax((0, 2, 3)))
    gamma = (0.02 / before.amax((0, 2, 3))).clamp(max=1)[:, None, None]
    assert (gamma < 1).any() and torch.equal(attention.c_attn.weight[:, 32:], values)
    with torch.no_grad():
        attention(*inputs[0][0], **inputs[0][1])
    torch.testing.assert_close(found[-1], gamma * before, rtol=1e-9, atol=1e-12)


def test_sinks_are_no_logits():
    largest = []
    for sink in (0.0, 50.0):
        model = model_of("gpt_oss")
        model.set_attn_implementation("isentrope")
        for layer in model.model.layers:
            layer.self_attn.sinks.data.fill_(sink)
        clip = isentrope.QKClip(model, tau=1e9)
        model(torch.arange(3, 23)[None], use_cache=False)
        clip.step()
        largest.append(clip.largest[:4])  # the input of later layers depends on the sinks
    assert torch.equal(*largest) and (largest[0] < 50).all()


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
        kept = torch.cat([(gamma == 1).repeat_interleave(8), torch.ones(32, dtype=torch.bool)])
        assert torch.equal(tensor[kept], before[key][kept]) and not torch.equal(tensor[~kept], before[key][~kept])
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
        clip.remove()
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
        clip.remove()
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
    clip.remove()


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.long)])
@pytest.mark.parametrize("function", [isentrope.attention, torchs_function])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_compiled_without_a_graph_break(function, checkpointed, backend):
    torch._dynamo.reset()
    model, x = Twice(function, checkpointed), torch.randn(2, 9, 32)
    of_qkv = projections.named(qkv="qkv", head_dim=8)
    compiled = copy.deepcopy(model)
    clip = isentrope.QKClip(model, 3.0, projections=of_qkv)
    for _ in range(2):
        model(x).sum().backward()
        clip.step()
    clip.remove()
    found = isentrope.QKClip(compiled, 3.0, projections=of_qkv)
    # Required by torch for compiled checkpoints: repeating a forward pass changes no maximum.
    with torch._dynamo.config.patch(skip_fwd_side_effects_in_bwd_under_checkpoint=True):
        run = torch.compile(compiled, fullgraph=True, backend=backend)
        for _ in range(2):
            run(x).sum().backward()
            found.step()
    found.remove()
    assert clip.clipped.any()
    torch.testing.assert_close(found.largest, clip.largest)
    assert torch.equal(found.clipped, clip.clipped)
    for a, b in zip(model.parameters(), compiled.parameters()):
        torch.testing.assert_close(a, b)


def test_torchs_module_and_function_are_read_and_left():
    own, x = torch.nn.functional.scaled_dot_product_attention, torch.randn(2, 9, 32)
    for size in (None, 20):
        torch.manual_seed(1)
        model = nn.MultiheadAttention(32, 4, batch_first=True, kdim=size, vdim=size).train()
        keys = x if size is None else torch.randn(2, 9, 20)
        clip = isentrope.QKClip(model, 0.05)
        want = model(x, keys, keys, need_weights=True, average_attn_weights=False)[1].log()
        model(x, keys, keys, need_weights=False)
        clip.step()
        got = model(x, keys, keys, need_weights=True, average_attn_weights=False)[1].log()
        gamma = (0.05 / clip.largest).clamp(max=1)[:, None, None]
        want = (gamma * (want - want.mean(-1, keepdim=True))).log_softmax(-1)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert (clip.largest > 0.05).all()
        clip.remove(), clip.remove()
        assert torch.nn.functional.scaled_dot_product_attention is own


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


@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
def test_norms_of_queries_are_refused(name):
    model = hf.AutoModelForCausalLM.from_config(CAUSAL[name]())
    with pytest.raises(ValueError, match="must not be normalised after their projections, because scaling.*got q_norm"):
        isentrope.QKClip(model)


def test_what_cannot_be_scaled_is_refused():
    with pytest.raises(ValueError, match="got none. Pass projections="):
        isentrope.QKClip(nn.Linear(3, 3))
    with pytest.raises(ValueError, match="tau must be positive"):
        isentrope.QKClip(blocks(), 0, projections=NAMED)
    with pytest.raises(ValueError, match="whole heads of 7; got 64"):
        isentrope.QKClip(blocks(), projections=projections.named(qkv="qkv", head_dim=7))
    with pytest.raises(ValueError, match="names must be q and k, or qkv"):
        projections.named(q="wq", head_dim=7)
    normed = blocks(1)
    nn.utils.parametrizations.weight_norm(normed[0].qkv)
    with pytest.raises(ValueError, match="merge adapters, parametrizations"):
        isentrope.QKClip(normed, projections=NAMED)
    shared = blocks()
    shared[1].qkv.weight = shared[0].qkv.weight
    with pytest.raises(ValueError, match="one attention; got one of 1 twice"):
        isentrope.QKClip(shared, projections=NAMED)
    eager = hf.AutoModelForCausalLM.from_config(hf.LlamaConfig(**GQA, attn_implementation="eager")).train()
    clip = isentrope.QKClip(eager)
    eager(torch.randint(3, 61, (1, 8)))
    with pytest.raises(ValueError, match='attn_implementation="isentrope" or "sdpa"'):
        clip.step()
    with pytest.raises(ValueError, match="on the meta device"):
        isentrope.QKClip(blocks(1).to("meta"), projections=NAMED)


@pytest.mark.parametrize("implementation", ["isentrope", "sdpa"])
def test_the_trainer_clips(tmp_path, implementation):
    torch.manual_seed(3)
    model = hf.AutoModelForCausalLM.from_config(hf.LlamaConfig(**GQA, attn_implementation=implementation))
    for name, parameter in model.named_parameters():
        parameter.data *= 40 if "q_proj" in name or "k_proj" in name else 1
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(3, 61, (8, 24))]
    arguments = hf.TrainingArguments(
        str(tmp_path), max_steps=3, per_device_train_batch_size=2, gradient_accumulation_steps=2, logging_steps=1, report_to=[],
        use_cpu=True, disable_tqdm=True, save_strategy="no", learning_rate=1e-4,
    )  # fmt: skip
    clipping = qk_clip.callback(tau=1.0)
    trainer = hf.Trainer(model, arguments, train_dataset=rows, callbacks=[clipping])
    trainer.train()
    logged = [entry["qk_clip/max_logit"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(logged) == 3 and logged[0] > 50 and max(logged[1:]) < 3, logged
    assert clipping.clip.clipped.max() >= 1
