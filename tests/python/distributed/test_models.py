"""Two-dimensional meshes: DTensors, and a whole model of transformers under FSDP2 and context parallel."""

import runpy

import pytest
import torch
import transformers
from cases import tensors, whole
from families import CAUSAL, GQA
from programs import ROOT
from ranks import over, run
from refusals import assert_refused
from torch.distributed import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

import isentrope.hf
from isentrope import distributed
from isentrope.hf.rope import parse, stretch_rope

CONFIGS = {
    **{name: CAUSAL[name] for name in ("llama", "mistral", "gpt_oss")},
    # The first layer has chunks; the second a scale that grows with the position every 3 rows.
    "llama4": lambda: transformers.Llama4TextConfig(**GQA, intermediate_size_mlp=48, num_local_experts=2,
        attention_chunk_size=5, no_rope_layers=[1, 0], floor_scale=3, attn_scale=0.5),
}


def model_of(config):
    torch.manual_seed(3)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="isentrope")


def compared(mesh, placements, options):
    """Requires the results and gradients of whole tensors. Returns those, the sharded ones, and the output of these."""
    inputs = tensors(12)
    spread = [distribute_tensor(x.detach(), mesh, placements).requires_grad_() for x in inputs]
    sinks = distribute_tensor(options["sinks"].detach(), mesh, [Replicate(), Replicate()]).requires_grad_()
    output, s = whole(*inputs, options)
    got, t = distributed.attention(*spread, **options | {"sinks": sinks}, return_stats=True)
    assert got.placements == tuple(placements) and got.shape == output.shape
    want = output, *s, *torch.autograd.grad(output.square().sum() + s.entropy.sum(), (*inputs, options["sinks"]))
    found = got, *t, *torch.autograd.grad(got.square().sum() + t.entropy.sum(), (*spread, sinks))
    torch.testing.assert_close([x.full_tensor() for x in found], list(want))
    return inputs, spread, got


@pytest.mark.long
@pytest.mark.parametrize("placements", [[Shard(0), Shard(2)], [Shard(1), Shard(2)], [Replicate(), Shard(2)]], ids=str)
@over(4)
def test_dtensors_sharded_over_their_rows(rank, placements):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("other", "rows"))
    options = {"rule": "logn(4)", "causal": True, "key_end": torch.tensor([12, 7]), "sinks": torch.randn(4, requires_grad=True)}
    inputs, spread, got = compared(mesh, placements, options)
    if placements[0] == Shard(0):
        with CommDebugMode() as traffic:  # the whole sequence is not gathered
            by_itself = isentrope.attention(*spread, **options)
        assert torch.equal(by_itself.to_local(), got.to_local()) and not traffic.get_total_counts()
        compiled = torch.compile(distributed.attention, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(*spread, **options).to_local(), got.to_local())
    for mask in ({"chunk_size": 5}, {"dilation": 2, "window_size": (6, -1)}, {"prefix_keys": 8},
                 {"prefix_keys": torch.tensor([9, 3])}, {"rule": "table(n=[1, 4, 16], factor=[1, 2, 3])"}):  # fmt: skip
        want, by_itself = (isentrope.attention(*x, **mask, causal=True) for x in (inputs, spread))
        assert by_itself.placements == tuple(placements)
        torch.testing.assert_close(by_itself.full_tensor(), want)
    alone, attention = [x.redistribute(mesh, [Replicate(), Replicate()]) for x in spread], distributed.attention
    assert_refused("group and sequence_length must be None with DTensors", attention, *spread, group=mesh["rows"])
    assert_refused("k must be a DTensor placed as q is", attention, spread[0], *inputs[1:])
    assert_refused("q must be sharded along its rows", attention, *alone)


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
@over()
def test_a_rule_with_numbers_of_heads_that_are_sharded(rank, ranks):
    """Every rank has the numbers of its heads, whose keys only they read. Four ranks also share the rows."""
    mesh = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("heads", "rows"))
    options = {"rule": "ssmax(s=[1, 2, 3, 4]) * logn(4)", "causal": True, "scale": 0.3, "sinks": torch.randn(4, requires_grad=True)}
    inputs, spread, _ = compared(mesh, [Shard(1), Shard(2)], options)
    assert_refused("rule must have a number for each of the", distributed.attention, *spread, rule="ssmax(s=[1, 2, 3])")
    one = [distribute_tensor(x.detach()[:, :1], mesh, [Shard(1), Shard(2)]) for x in inputs[1:]]
    assert_refused("k must have the 4 heads of q, or a multiple of the 2 shards .* got 1", distributed.attention, spread[0], *one)


@pytest.mark.long
@pytest.mark.parametrize("name", CONFIGS)
@over(4)
def test_models_on_a_mesh_have_the_gradients_of_one_process(rank, name):
    """Pairs of ranks have one batch each, and split its sequences over both ranks."""
    layout = "zigzag" if name.startswith("llama") else "contiguous"
    tokens = torch.randint(3, 61, (4, 12))
    inputs = dict(input_ids=tokens, labels=tokens.index_fill(1, torch.arange(2), -100))
    alone, model = model_of(CONFIGS[name]()), model_of(CONFIGS[name]())
    for each in (alone, model):
        isentrope.hf.set_rule(each, "logn(train_len=4)", force=True)
    want = alone(**inputs)
    want.loss.backward()

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
    isentrope.hf.context_parallel(model, mesh["cp"], layout=layout)
    mesh["dp", "cp"]._flatten("dp_cp")
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh["dp_cp"])
    fully_shard(model, mesh=mesh["dp_cp"])
    mine = slice(2 * mesh.get_local_rank("dp"), 2 * mesh.get_local_rank("dp") + 2)
    got = model(**{key: x[mine] for key, x in inputs.items()})
    got.loss.backward()

    torch.testing.assert_close(distributed.gather(got.loss[None], 0).mean(), want.loss)
    logits = distributed.gather(got.logits, 1, mesh["cp"], layout)
    torch.testing.assert_close(logits, want.logits[mine], rtol=0, atol=1e-5)
    for (key, a), b in zip(model.named_parameters(), alone.parameters()):
        torch.testing.assert_close(a.grad.full_tensor(), b.grad, rtol=0, atol=1e-6, msg=lambda text, key=key: key + text)


@pytest.mark.parametrize("name", ["llama", "llama4"])
@over(2)
def test_masks_and_documents_of_a_model(rank, name):
    alone, model = model_of(CONFIGS[name]()), model_of(CONFIGS[name]())
    isentrope.hf.context_parallel(model, None)
    tokens = torch.randint(3, 61, (2, 11))

    def same(batch=2, **inputs):
        want = alone(tokens[:batch], **inputs)
        with isentrope.hf.record("entropy") as records:
            got = model(tokens[:batch], **inputs)
        assert len(records) == 2 and records[0].statistics.entropy.shape[2] == got.logits.shape[1]
        padding_mask = inputs.get("attention_mask", torch.ones(batch, 11)).bool()
        logits = distributed.gather(got.logits, 1, layout="zigzag", sequence_length=11)
        torch.testing.assert_close(logits[padding_mask], want.logits[padding_mask], rtol=0, atol=1e-5)

    same()
    for shown in (slice(4, None), slice(None, 6)):
        mask = torch.zeros(2, 11, dtype=torch.long)
        mask[0], mask[1, shown] = 1, 1
        same(attention_mask=mask)
        same(attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0))
    packed = dict(position_ids=torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4, 0, 0, 1]]), use_cache=False)
    if name == "llama":
        same(batch=1, **packed)
    else:
        assert_refused("no attention with chunks with packed documents", model, tokens[:1], **packed)
    mask[1], documents = torch.arange(11) % 2, torch.zeros(2, 11, dtype=torch.long)
    assert_refused("attention_mask must leave one range of keys", model, tokens, attention_mask=mask)
    assert_refused("packed documents must come in a batch of 1; got 2", model, tokens, position_ids=documents)
    with isentrope.hf.record("received"):
        assert_refused(r"must be called outside of .* hf.record\(.received.\)", model, tokens)
    assert_refused(r"logits_to_keep must be None or 0.*without a cache; got 1", model, tokens, logits_to_keep=1)
    assert_refused("return_dict must be True", model, tokens, labels=tokens, return_dict=False)
    assert_refused("token_type_ids must be None, because it is not split", model, tokens, token_type_ids=tokens)


@over(2)
def test_what_is_not_split_is_refused(rank):
    """Tokens that see each other outside of the operator, windows of masks alone, and losses that are no sum over tokens."""
    tokens, split = torch.randint(3, 61, (2, 12)), isentrope.hf.context_parallel
    mixed = model_of(transformers.Lfm2Config(**GQA, layer_types=["conv", "full_attention"]))
    assert_refused("tokens by its own attention alone.*got Lfm2ForCausalLM.*layers of conv", split, mixed, None)
    for message, kind, sizes in (
        ("no attention with a window that only its mask has", "PhimoeForCausalLM", {"sliding_window": 5}),
        ("output_router_logits must be False", "MixtralForCausalLM", {"num_local_experts": 2, "output_router_logits": True}),
        ("labels must be None in a ModernBertForMaskedLM", "ModernBertForMaskedLM", {}),
        ("labels must be None in a BartForCausalLM", "BartForCausalLM", {"d_model": 32, "decoder_layers": 1}),
    ):  # fmt: skip
        model = getattr(transformers, kind)._from_config(getattr(transformers, kind).config_class(**GQA | sizes), attn_implementation="isentrope")
        split(model, None)
        assert_refused(message, model, tokens, labels=tokens)


ROPES = {
    "dynamic": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
    "longrope": {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [1, 2, 4, 8],
                 "original_max_position_embeddings": 8},
}  # fmt: skip


@pytest.mark.long
@over(2)
def test_ropes_that_read_the_length_read_that_of_the_sequence(rank):
    for kind in (*ROPES, "switched"):
        sizes = GQA | {"max_position_embeddings": 8} | ({"rope_parameters": ROPES[kind]} if kind in ROPES else {})
        alone, model = models = [model_of(transformers.LlamaConfig(**sizes)) for _ in range(2)]
        for each in models if kind == "switched" else ():
            stretch_rope(each, parse("yarn:4"), switched=True)
        isentrope.hf.context_parallel(model, None, layout="contiguous")
        for length in (14, 6, 10):  # only the last rank's contiguous part exceeds the initial 8
            tokens = torch.randint(3, 61, (2, length))
            logits = distributed.gather(model(tokens).logits, 1, sequence_length=length)
            torch.testing.assert_close(logits, alone(tokens).logits, rtol=0, atol=1e-5, msg=lambda text, kind=kind: kind + text)


def example(rank):
    module = runpy.run_path(str(ROOT / "examples/context_parallel.py"))
    return module["train"]((ROOT / "LICENSE").read_bytes(), steps=6)


@pytest.mark.long
def test_the_example_learns_the_same_on_every_rank():
    first, *others = run(4, example)
    assert all(losses == first for losses in others)
    assert first[0] == pytest.approx(5.55, abs=0.2) and first[-1] < first[0] - 0.8, first  # ln 256 at the start
