"""The attention in transformers equals the library's own: logits, generated tokens, and the known traps."""

import json
import warnings

import pytest
import torch
import transformers as hf
from transformers import StaticCache

import isentrope.hf
from isentrope import ScaleRule

pytestmark = pytest.mark.filterwarnings("ignore:.set_rule.*length=total")  # the warning's own test is below

SIZES = dict(vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)  # fmt: skip
GQA = SIZES | {"num_key_value_heads": 2, "head_dim": 8}

CAUSAL = {
    "llama": lambda: hf.LlamaConfig(**GQA),
    "mistral": lambda: hf.MistralConfig(**GQA, sliding_window=5),
    "qwen3": lambda: hf.Qwen3Config(**GQA),
    "gemma2": lambda: hf.Gemma2Config(**GQA, query_pre_attn_scalar=12, sliding_window=5, attn_logit_softcapping=2.0),
    "gemma3": lambda: hf.Gemma3TextConfig(**GQA, query_pre_attn_scalar=12, sliding_window=5),
    "gpt_oss": lambda: hf.GptOssConfig(**GQA, num_local_experts=2, num_experts_per_tok=1, sliding_window=5),
    "gpt2": lambda: hf.GPT2Config(vocab_size=61, n_embd=32, n_layer=2, n_head=4, n_positions=64, attn_pdrop=0.0,
                                  resid_pdrop=0.0, embd_pdrop=0.0, bos_token_id=1, eos_token_id=2, pad_token_id=0),
    "gpt_neox": lambda: hf.GPTNeoXConfig(**SIZES),
}  # fmt: skip
ENCODERS = {
    "bert": lambda: (hf.BertConfig(**SIZES, attention_probs_dropout_prob=0.0), hf.BertModel),
    "modernbert": lambda: (hf.ModernBertConfig(**SIZES, local_attention=6, cls_token_id=1, sep_token_id=2),
                           hf.ModernBertModel),
    "t5": lambda: (hf.T5Config(vocab_size=61, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
                               dropout_rate=0.0), hf.T5EncoderModel),
}  # fmt: skip
# sdpa knows neither sinks nor soft-caps.
EAGER = {"gemma2", "gpt_oss"}


def twins(name):
    """The model with the library's own attention, and with ours."""
    models = []
    for implementation in ("eager" if name in EAGER else "sdpa", "isentrope"):
        torch.manual_seed(5)
        if name in CAUSAL:
            model = hf.AutoModelForCausalLM.from_config(CAUSAL[name](), attn_implementation=implementation)
        else:
            config, kind = ENCODERS[name]()
            model = kind._from_config(config, attn_implementation=implementation)
        models.append(model.eval())
    models[1].load_state_dict(models[0].state_dict())
    for module in models[0].modules():
        if hasattr(module, "sinks"):
            torch.nn.init.normal_(module.sinks)
    models[1].load_state_dict(models[0].state_dict())
    assert models[1].config._attn_implementation == "isentrope"
    return models


def tokens(batch=2, length=12):
    return torch.randint(3, 61, (batch, length))


def padding(side):
    mask = torch.ones(2, 12, dtype=torch.long)
    if side == "left":
        mask[1, :5] = 0
    if side == "right":
        mask[1, -5:] = 0
    return mask


def logits(model, **inputs):
    with torch.no_grad():
        result = model(**inputs)
    return result.logits if hasattr(result, "logits") else result.last_hidden_state


@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("name", [*CAUSAL, *ENCODERS])
def test_logits_are_the_same(name, side):
    theirs, ours = twins(name)
    ids, mask = tokens(), padding(side)
    shown = mask.bool()
    want, got = (logits(m, input_ids=ids, attention_mask=mask)[shown] for m in (theirs, ours))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("how", ["dynamic", "static", "no cache", "chunks", "beams"])
@pytest.mark.parametrize("name", CAUSAL)
def test_generated_tokens_are_the_same(name, how):
    options = {
        "dynamic": {}, "static": {"cache_implementation": "static"}, "no cache": {"use_cache": False},
        "chunks": {"prefill_chunk_size": 5}, "beams": {"num_beams": 3},
    }[how]  # fmt: skip
    theirs, ours = twins(name)
    ids, mask = tokens(), padding("left")
    if how == "chunks":
        ids, mask = ids[:1], mask[:1]
    generate = dict(attention_mask=mask, max_new_tokens=8, do_sample=False, disable_compile=True, **options)
    with torch.no_grad():
        want, got = (m.generate(ids, **generate) for m in (theirs, ours))
    assert torch.equal(want, got)


def test_packed_documents():
    theirs, ours = twins("llama")
    positions = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 1, 2]])
    ids = tokens(1)
    want, got = (logits(m, input_ids=ids, position_ids=positions, use_cache=False) for m in (theirs, ours))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)


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


# --- the traps of the interface, one a test


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
    roformer.set_attn_implementation("isentrope")  # which only logs that it does not
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


def test_trap_6_statistics_do_not_pose_as_attention_weights():
    _, ours = twins("llama")
    with torch.no_grad():
        attentions = ours(tokens(), output_attentions=True).attentions
    assert attentions is None or all(x is None for x in attentions)


def test_trap_7_recording_survives_compilation_and_checkpointing():
    _, ours = twins("llama")
    ids = tokens(1)
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
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


LONG = {
    "llama_4": lambda: hf.Llama4TextConfig(**GQA, num_local_experts=2, attn_temperature_tuning=True),
    "ministral_3": lambda: hf.Ministral3Config(**GQA, rope_parameters={
        "rope_type": "default", "rope_theta": 1e4, "llama_4_scaling_beta": 0.1,
        "original_max_position_embeddings": 16}),
    "yarn": lambda: hf.LlamaConfig(**GQA, rope_parameters={
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}),
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
def test_trap_9_a_second_length_rule_is_refused_unless_forced(name):
    model = hf.AutoModelForCausalLM.from_config(LONG[name](), attn_implementation="isentrope")
    assert isentrope.hf.model_rule(model).by_length
    with pytest.raises(ValueError, match="must not scale by length already"):
        isentrope.hf.set_rule(model, "logn(8)")
    isentrope.hf.set_rule(model, "logn(8)", force=True)


# --- rules


def test_a_rule_grows_with_the_keys_a_row_sees_without_padding():
    _, ours = twins("gemma2")
    isentrope.hf.set_rule(ours, "logn(4)", layers=[1])
    with isentrope.hf.record("lambda_", "support") as records:
        logits(ours, input_ids=tokens(), attention_mask=padding("left"))
    rule = ScaleRule("logn(4)")
    own = 12**-0.5
    plain, ruled = (r.statistics for r in records)
    seen = plain.support > 0
    torch.testing.assert_close(plain.lambda_[seen], torch.full_like(plain.lambda_[seen], own))
    assert ruled.support[1, 0].tolist() == [0] * 5 + list(range(1, 8))
    want = torch.tensor([own * 8**0.5 * rule.lambda_(n, 8) for n in range(1, 8)])
    torch.testing.assert_close(ruled.lambda_[1, 0, 5:], want)


@pytest.mark.parametrize("rule", ["llama_4_scaling(beta=1, train_len=2)", "log_length(length=total)", "dual_chunk(2, 1)"])
@pytest.mark.parametrize("how", ["padded", "static", "decode"])
def test_rules_of_position_and_total_see_no_padding_and_no_empty_cache(rule, how):
    _, ours = twins("llama")
    isentrope.hf.set_rule(ours, rule)
    ids, mask = tokens(), padding("left")
    with isentrope.hf.record("lambda_") as alone:
        logits(ours, input_ids=ids[1:, 5:])
    want = alone[0].statistics.lambda_[0, 0]
    with isentrope.hf.record("lambda_") as records:
        if how == "padded":
            logits(ours, input_ids=ids, attention_mask=mask)
            got = records[0].statistics.lambda_[1, 0, 5:]
        else:
            cache = StaticCache(ours.config, max_cache_len=40) if how == "static" else hf.DynamicCache()
            logits(ours, input_ids=ids[1:, 5:11], past_key_values=cache)
            logits(ours, input_ids=ids[1:, 11:], past_key_values=cache)
            got, want = records[2].statistics.lambda_[0, 0], want[-1:]
    torch.testing.assert_close(got, want)


POSITION_RULES = [
    "llama_4_scaling(beta=1, train_len=2)", "log_length(length=total)", "logn(4) * dual_chunk(2, 1, length=position)",
]  # fmt: skip


def lambdas(model, **inputs):
    with isentrope.hf.record("lambda_") as records:
        logits(model, **inputs)
    return records[0].statistics.lambda_


@pytest.mark.parametrize("rule", POSITION_RULES)
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("chunk", [1, 3])
def test_rules_of_position_and_total_know_what_a_window_has_dropped(rule, cache, chunk):
    _, ours = twins("mistral")
    isentrope.hf.set_rule(ours, rule)
    ids, mask = tokens(), padding("left")
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    want = lambdas(ours, input_ids=ids, attention_mask=mask, position_ids=positions)[..., -1]
    if cache == "dynamic":
        past = hf.DynamicCache(config=ours.config)
    else:
        past = StaticCache(ours.config, max_cache_len=12)
    steps = [slice(0, 6), *(slice(at, at + chunk) for at in range(6, 12, chunk))]
    for step in steps:
        inputs = {"input_ids": ids[:, step], "attention_mask": mask[:, : step.stop], "position_ids": positions[:, step]}
        got = lambdas(ours, past_key_values=past, **inputs)[..., -1]
    torch.testing.assert_close(got, want)
    rule = ScaleRule(rule)
    if "logn" not in str(rule):
        torch.testing.assert_close(want[:, 0], torch.tensor([rule.lambda_(12, 8), rule.lambda_(7, 8)]))


@pytest.mark.parametrize("rule", POSITION_RULES)
def test_rules_of_position_and_total_begin_anew_with_every_document(rule):
    _, ours = twins("llama")
    isentrope.hf.set_rule(ours, rule)
    lengths, ids = (5, 1, 6), tokens(1)
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    with isentrope.hf.record("lambda_", "entropy") as records:
        got = logits(ours, input_ids=ids, position_ids=positions, use_cache=False)
    parts = ids.split(lengths, 1)
    want = torch.cat([lambdas(ours, input_ids=part, use_cache=False) for part in parts], 2)
    torch.testing.assert_close(records[0].statistics.lambda_, want)
    alone = torch.cat([logits(ours, input_ids=part, use_cache=False) for part in parts], 1)
    torch.testing.assert_close(got, alone, rtol=0, atol=1e-5)


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
    got = [logits(compiled, input_ids=ids[:, at : at + 1], past_key_values=cache) for at in (8, 9)]
    torch.testing.assert_close(got[1], logits(ours, input_ids=ids[:, :10])[:, -1:], rtol=0, atol=1e-5)
    packed = {"input_ids": ids, "position_ids": torch.arange(12)[None] % 6, "use_cache": False}
    apart = torch.block_diag(*[torch.ones(6, 6).tril()] * 2).bool()[None, None]
    with pytest.raises(RuntimeError, match="packed documents need a model that is not compiled"):
        logits(compiled, attention_mask=apart, **packed)


def test_a_window_without_positions_is_refused():
    q, k = torch.randn(1, 4, 1, 8), torch.randn(1, 2, 5, 8)
    module = torch.nn.Module()
    module.isentrope_rule, module.isentrope_rule_reads_position = "log_length(length=total)", True
    with pytest.raises(ValueError, match="position_ids must reach a layer with a sliding window"):
        isentrope.hf.attention_forward(module, q, k, k, None, sliding_window=5)


@pytest.mark.parametrize("rule", [*(rule for rule in ScaleRule.names() if rule not in ("table", "per_row")), "log_length(length=total)"])
def test_a_cached_generation_is_a_whole_pass_or_one_is_warned(rule):
    """Of every rule: what it makes of a token does not depend on those that come later, or one is told."""
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
    got = torch.cat([logits(ours, input_ids=ids[:, at : at + 1], past_key_values=cache) for at in range(8, 12)], 1)
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
    with pytest.raises(ValueError, match="rule must have a number for each of the 4 heads, or one for all; got 3"):
        isentrope.hf.set_rule(ours, "ssmax(s=[1, 2, 3])")
    isentrope.hf.set_rule(ours, "ssmax(s=[1, 2, 3, 4])")


def test_a_rule_is_taken_away_again():
    theirs, ours = twins("llama")
    ids = tokens()
    isentrope.hf.set_rule(ours, "entropy_invariant(base=4)")
    assert (logits(ours, input_ids=ids) - logits(theirs, input_ids=ids)).abs().max() > 1e-4
    isentrope.hf.set_rule(ours, None)
    torch.testing.assert_close(logits(ours, input_ids=ids), logits(theirs, input_ids=ids), rtol=0, atol=1e-5)


def test_rules_that_cannot_be_are_named():
    _, ours = twins("llama")
    for index in (2, -1):
        with pytest.raises(ValueError, match=f"layers must be at least 0 and below 2; got {index}"):
            isentrope.hf.set_rule(ours, "logn(8)", layers=[0, index])
    for layers in (1, "1", [0.0]):
        with pytest.raises(TypeError, match="layers must be indices"):
            isentrope.hf.set_rule(ours, "logn(8)", layers=layers)
    with pytest.raises(ValueError, match="did you mean logn"):
        isentrope.hf.set_rule(ours, "lognn(8)")
    with pytest.raises(ValueError, match="base"):
        isentrope.hf.set_rule(ours, "constant(0.5)")


def test_gradients_are_the_same():
    gradients = []
    for model in twins("qwen3"):
        torch.manual_seed(1)
        ids = tokens()
        model(ids, attention_mask=padding("right"), labels=ids).loss.backward()
        gradients.append({n: p.grad for n, p in model.named_parameters()})
    for name, want in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], want, rtol=1e-4, atol=1e-6, msg=lambda m: f"{name}: {m}")
