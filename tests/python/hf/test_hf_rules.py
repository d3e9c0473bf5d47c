"""Rules set on models of transformers: n with padding, caches, windows and documents, and refusals."""

import json
import warnings

import pytest
import torch
import transformers as hf
from families import ENCODERS, logits, padding, tokens, twins
from refusals import assert_refused
from transformers import StaticCache

import isentrope.hf
from isentrope import ScaleRule

pytestmark = pytest.mark.filterwarnings("ignore:.set_rule.*length=total")  # the warning's own test is below


def test_a_rule_grows_with_the_keys_a_row_sees_without_padding():
    _, ours = twins("gemma2")
    isentrope.hf.set_rule(ours, "logn(4)", layers=[1])
    with isentrope.hf.record("lambda_", "support") as records:
        logits(ours, input_ids=tokens(), attention_mask=padding("left"))
    rule, own = ScaleRule("logn(4)"), 12**-0.5
    plain, ruled = (r.statistics for r in records)
    seen = plain.support > 0
    torch.testing.assert_close(plain.lambda_[seen], torch.full_like(plain.lambda_[seen], own))
    assert ruled.support[1, 0].tolist() == [0] * 5 + list(range(1, 8))
    want = torch.tensor([own * 8**0.5 * rule.lambda_(n, 8) for n in range(1, 8)])
    torch.testing.assert_close(ruled.lambda_[1, 0, 5:], want)


POSITION_RULES = [
    "llama_4_scaling(beta=1, train_len=2)", "log_length(length=total)", "logn(4) * dual_chunk(2, 1, length=position)", "dual_chunk(2, 1)",
]  # fmt: skip


def lambdas(model, **inputs):
    with isentrope.hf.record("lambda_") as records:
        logits(model, **inputs)
    return records[0].statistics.lambda_


@pytest.mark.parametrize("rule", POSITION_RULES)
@pytest.mark.parametrize("name, cache", [("llama", "dynamic"), ("llama", "static"), ("mistral", "dynamic"), ("mistral", "static")])
@pytest.mark.parametrize("chunk, texts", [(1, "both"), (3, "both"), (1, "the padded")])
def test_rules_of_position_and_total_see_no_padding_and_what_a_window_has_dropped(rule, name, cache, chunk, texts):
    """Nor the part of a static cache that is empty yet."""
    _, ours = twins(name)
    isentrope.hf.set_rule(ours, rule)
    ids, mask = (x if texts == "both" else x[1:, 3:] for x in (tokens(), padding("left")))
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    whole = lambdas(ours, input_ids=ids, attention_mask=mask, position_ids=positions)
    torch.testing.assert_close(whole[-1:, :, -7:], lambdas(ours, input_ids=ids[-1:, -7:]))
    past = hf.DynamicCache(config=ours.config) if cache == "dynamic" else StaticCache(ours.config, max_cache_len=40)
    steps = [slice(0, 3), *(slice(start, start + chunk) for start in range(3, ids.shape[1], chunk))]
    for step in steps:
        inputs = {"input_ids": ids[:, step], "attention_mask": mask[:, : step.stop], "position_ids": positions[:, step]}
        got = lambdas(ours, past_key_values=past, **inputs)[..., -1]
        read = {"input_ids": ids[:, : step.stop], "position_ids": positions[:, : step.stop]}
        want = lambdas(ours, attention_mask=inputs["attention_mask"], **read)[..., -1]
        torch.testing.assert_close(got[mask[:, step.stop - 1] > 0], want[mask[:, step.stop - 1] > 0])
    if "dual_chunk" not in rule:
        torch.testing.assert_close(want[:, 0], torch.tensor([ScaleRule(rule).lambda_(n, 8) for n in (12, 7)])[-len(want) :])


@pytest.mark.parametrize("rule", POSITION_RULES)
def test_rules_of_position_and_total_begin_anew_with_every_document(rule):
    ours, lengths, ids = twins("llama")[1], (5, 1, 6), tokens(1)
    isentrope.hf.set_rule(ours, rule)
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    with isentrope.hf.record("lambda_", "received") as records, isentrope.hf.record("support", "received") as others:
        got = logits(ours, input_ids=ids, position_ids=positions, use_cache=False)
    torch.testing.assert_close(records[0].received.sum(-1), torch.full((1, 4), 12.0))
    assert torch.equal(records[0].received, others[0].received) and others[0].statistics.lambda_ is None
    parts = ids.split(lengths, 1)
    want = torch.cat([lambdas(ours, input_ids=part, use_cache=False) for part in parts], 2)
    torch.testing.assert_close(records[0].statistics.lambda_, want)
    alone = torch.cat([logits(ours, input_ids=part, use_cache=False) for part in parts], 1)
    torch.testing.assert_close(got, alone, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="are a call each, of which Monitor would read the first"), isentrope.Monitor(ours).watch():
        logits(ours, input_ids=ids.repeat(2, 1), position_ids=positions.repeat(2, 1), use_cache=False)


@pytest.mark.long
def test_rules_of_position_in_compiled_models():
    _, ours = twins("llama")
    isentrope.hf.set_rule(ours, POSITION_RULES[0])
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    mask = padding("left").bool()[:, None, None] & torch.ones(12, 12, dtype=torch.bool).tril()
    padded = {"input_ids": tokens(), "attention_mask": mask, "use_cache": False}
    torch.testing.assert_close(logits(compiled, **padded), logits(ours, **padded))
    ids, cache = tokens(1), StaticCache(ours.config, max_cache_len=16)
    logits(ours, input_ids=ids[:, :8], past_key_values=cache)
    got = [logits(compiled, input_ids=ids[:, start : start + 1], past_key_values=cache) for start in (8, 9)]
    torch.testing.assert_close(got[1], logits(ours, input_ids=ids[:, :10])[:, -1:], rtol=0, atol=1e-5)
    packed = {"input_ids": ids, "position_ids": torch.arange(12)[None] % 6, "use_cache": False}
    packed["attention_mask"] = torch.block_diag(*[torch.ones(6, 6).tril()] * 2).bool()[None, None]
    assert_refused("packed documents need a model that is not compiled", logits, compiled, **packed, error=RuntimeError)


def test_a_window_without_positions_is_refused():
    q, k = torch.randn(2, 4, 1, 8), torch.randn(2, 2, 5, 8)
    module = torch.nn.Module()
    module.isentrope_rule, module.isentrope_rule_reads_position = "log_length(length=total)", True
    run, place = isentrope.hf.attention_forward, {"sliding_window": 5, "position_ids": torch.tensor([[3]])}
    assert_refused("position_ids must reach a layer with a sliding window", run, module, q, k, k, None, sliding_window=5)
    holes, left = torch.tensor([[[[1, 0, 1, 1, 1]]]]) > 0, torch.arange(5) >= torch.tensor([0, 2])[:, None, None, None]
    assert_refused("padding must be at either end of a sequence", run, module, q, k, k, holes, **place)
    assert_refused("position_ids must not count padding", run, module, q, k, k, left, **place)
    assert_refused("position_ids must not count padding", run, module, q[1:], k[1:], k[1:], left[1:], **place)
    left[0] = False  # a sequence that is still padding
    run(module, q, k, k, left, sliding_window=5, position_ids=torch.tensor([[0], [2]]))


@pytest.mark.parametrize("rule", [*(rule for rule in ScaleRule.names() if rule not in ("table", "per_row")), "log_length(length=total)"])
def test_a_cached_generation_is_a_whole_pass_or_one_is_warned(rule):
    """For every rule, a token's result does not depend on later tokens, or there is a warning."""
    _, ours = twins("llama")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            isentrope.hf.set_rule(ours, rule)
        except ValueError as error:
            assert "only the first rule of a product may have another base" in str(error)
            return
    ids, cache = tokens(), hf.DynamicCache()
    want = logits(ours, input_ids=ids)
    logits(ours, input_ids=ids[:, :8], past_key_values=cache)
    got = torch.cat([logits(ours, input_ids=ids[:, start : start + 1], past_key_values=cache) for start in range(8, 12)], 1)
    if warned:
        assert len(warned) == 1 and f"[set_rule] {ScaleRule(rule).text} counts all keys" in str(warned[0].message)
        assert "length=total" in ScaleRule(rule).text or json.loads(ScaleRule(rule).to_json())["length"] == "total"
    else:
        torch.testing.assert_close(got, want[:, 8:], rtol=0, atol=1e-5)


def test_an_encoder_may_count_the_whole_call():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        isentrope.hf.set_rule(twins("bert")[1], "dual_chunk(2)")


@pytest.mark.parametrize("name", ["llama", "gpt2", "gpt_neox", "bert", "modernbert", "t5"])
def test_numbers_of_other_heads_are_refused_when_they_are_set(name):
    _, ours = twins(name)
    assert_refused("rule must have a number for each of the 4 heads, or one for all; got 3", isentrope.hf.set_rule, ours, "ssmax(s=[1, 2, 3])")
    isentrope.hf.set_rule(ours, "ssmax(s=[1, 2, 3, 4])")


def test_a_rule_is_taken_away_again():
    (theirs, ours), ids = twins("llama"), tokens()
    isentrope.hf.set_rule(ours, "entropy_invariant(base=4)")
    assert (logits(ours, input_ids=ids) - (want := logits(theirs, input_ids=ids))).abs().max() > 1e-4
    isentrope.hf.set_rule(ours, None)
    torch.testing.assert_close(logits(ours, input_ids=ids), want, rtol=0, atol=1e-5)


def test_rules_that_cannot_be_are_named():
    _, ours = twins("llama")
    for index in (2, -1):
        assert_refused(f"layers must be at least 0 and below 2; got {index}", isentrope.hf.set_rule, ours, "logn(8)", layers=[0, index])
    for layers in (1, "1", [0.0]):
        assert_refused("layers must be indices", isentrope.hf.set_rule, ours, "logn(8)", layers=layers, error=TypeError)
    assert_refused("did you mean logn", isentrope.hf.set_rule, ours, "lognn(8)")
    assert_refused("base", isentrope.hf.set_rule, ours, "constant(0.5)")
    t5 = hf.T5Model._from_config(ENCODERS["t5"]()[0], attn_implementation="isentrope")
    assert_refused("layers must be of self-attention .* got 1.EncDecAttention", isentrope.hf.set_rule, t5, POSITION_RULES[0])
    isentrope.hf.set_rule(t5, POSITION_RULES[0], layers=[0, 1, 2, 4])
    isentrope.hf.set_rule(t5, POSITION_RULES[1])  # of the total


def test_attention_over_layers_has_no_rule():
    _, ours = twins("llama")
    # Inkling 2 has attention over the states of earlier layers between its layers.
    ours.mixer = type("BlockAttentionResidual", (torch.nn.Module,), {})()
    isentrope.hf.set_rule(ours, "logn(4)", layers=[1])
    assert not hasattr(ours.mixer, "isentrope_rule")
    assert_refused("layers must be at least 0 and below 2; got 2", isentrope.hf.set_rule, ours, "logn(4)", layers=[2])
