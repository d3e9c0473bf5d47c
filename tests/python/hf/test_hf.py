"""The attention in transformers: generated tokens, masks of the caller's, and known pitfalls. test_architectures has the rest."""

import pytest
import torch
import transformers as hf
from families import CAUSAL, SIZES, logits, model_of, padding, tokens, twins
from transformers import StaticCache

import isentrope.hf


@pytest.mark.parametrize("how", ["no cache", "chunks", "beams"])
@pytest.mark.parametrize("name", CAUSAL)
def test_generated_tokens_are_the_same(name, how):
    options = {"no cache": {"use_cache": False}, "chunks": {"prefill_chunk_size": 5}, "beams": {"num_beams": 3}}[how]
    theirs, ours = twins(name)
    ids, mask = tokens(), padding("left")
    if how == "chunks":
        ids, mask = ids[:1], mask[:1]
    generate = dict(attention_mask=mask, max_new_tokens=8, do_sample=False, disable_compile=True, **options)
    with torch.no_grad():
        want, got = (m.generate(ids, **generate) for m in (theirs, ours))
    assert torch.equal(want, got)


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_masks_of_the_callers_own(kind):
    theirs, ours = twins("llama")
    mask = torch.rand(2, 1, 12, 12) > 0.4
    mask |= torch.eye(12, dtype=torch.bool)
    if kind != torch.bool:
        mask = torch.where(mask, torch.randn(2, 1, 12, 12), torch.finfo(kind).min)
    ids = tokens()
    want, got = (logits(m, input_ids=ids, attention_mask=mask) for m in (theirs, ours))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)


def test_trap_1_the_mask_function_is_registered():
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    assert "isentrope" in ALL_MASK_ATTENTION_FUNCTIONS
    _, ours = twins("llama")
    ids, mask = tokens(), padding("left")
    alone = logits(ours, input_ids=ids[1:, 5:])
    padded = logits(ours, input_ids=ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0))
    torch.testing.assert_close(padded[1:, 5:], alone, rtol=0, atol=1e-5)


def test_trap_2_the_first_fill_of_a_static_cache_is_aligned_at_the_top_left():
    _, ours = twins("llama")
    ids = tokens(1)
    cache = StaticCache(ours.config, max_cache_len=40)
    want = logits(ours, input_ids=ids)
    with isentrope.hf.record("support") as records:
        got = logits(ours, input_ids=ids, past_key_values=cache)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)
    assert records[0].statistics.support[0, 0].tolist() == list(range(1, 13))


def test_trap_3_a_model_that_keeps_its_own_attention_is_told():
    theirs, _ = twins("llama")
    roformer = hf.RoFormerModel(hf.RoFormerConfig(**SIZES))
    roformer.set_attn_implementation("isentrope")  # only logs that it is unsupported
    for model, kept in ((theirs, "sdpa"), (roformer, "eager")):
        with pytest.raises(ValueError, match=f'must use attn_implementation="isentrope"; got \'{kept}\''):
            isentrope.hf.set_rule(model, "logn(8)")


def test_trap_4_the_name_is_not_taken_for_another():
    for word in ("sdpa", "flash", "flex_attention", "/", "|"):
        assert word not in isentrope.hf.NAME


def test_trap_5_the_choice_is_not_saved_with_the_model(tmp_path):
    _, ours = twins("llama")
    ours.save_pretrained(tmp_path)
    assert hf.AutoModelForCausalLM.from_pretrained(tmp_path).config._attn_implementation == "sdpa"
    again = hf.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="isentrope")
    ids = tokens()
    assert torch.equal(logits(again.eval(), input_ids=ids), logits(ours, input_ids=ids))


def test_trap_6_attention_weights_are_refused():
    _, ours = twins("llama")
    with pytest.raises(ValueError, match="output_attentions must be False.*LlamaAttention.*eager.*isentrope.hf.record"):
        ours(tokens(), output_attentions=True)


def test_trap_7_recording_survives_compilation_and_checkpointing():
    _, ours = twins("llama")
    ids = tokens(1)
    compiled = torch.compile(ours, fullgraph=True, backend="eager")
    with isentrope.hf.record("entropy") as records:
        torch.testing.assert_close(compiled(ids, use_cache=False).logits, ours(ids, use_cache=False).logits)
    assert len(records) == 2, "of the plain call alone"
    ours.train().gradient_checkpointing_enable()
    with isentrope.hf.record("entropy") as records:
        ours(ids, use_cache=False).logits.sum().backward()
    assert sorted(r.module.layer_idx for r in records) == [0, 0, 1, 1]


def test_trap_8_rows_without_keys_are_zero():
    _, ours = twins("llama")
    mask = torch.zeros(1, 1, 4, 4, dtype=torch.bool)
    mask[..., 2:, 2:] = torch.ones(2, 2, dtype=torch.bool).tril()
    with isentrope.hf.record("lse", "entropy", "support") as records:
        assert logits(ours, input_ids=tokens(1, 4), attention_mask=mask).isfinite().all()
    s = records[0].statistics
    assert (s.lse[..., :2] == -torch.inf).all() and s.support[0, 0].tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize("name", ["llama", "gemma2", "bert"])
def test_hessian_vector_products_are_those_of_eager(name):
    ids, mask = tokens(), padding("right")
    found = []
    for implementation in ("eager", "isentrope"):
        model = model_of(name, implementation)
        leaves = [p for p in model.parameters() if p.requires_grad]
        generator = torch.Generator().manual_seed(3)
        directions = [torch.randn(p.shape, generator=generator) for p in leaves]
        loss = model(input_ids=ids, attention_mask=mask)[0][mask.bool()].square().mean()
        gradients = torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
        along = sum((g * d).sum() for g, d in zip(gradients, directions) if g is not None)
        products = torch.autograd.grad(along, leaves, allow_unused=True)
        found.append([x for x in products if x is not None])
    scale = max(float(x.abs().max()) for x in found[0])
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-5 * scale)
