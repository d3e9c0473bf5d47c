"""`model_rule` against the scale in each model's own code, and families that were not read."""

import warnings

import pytest
import torch
import transformers as hf
from families import GQA, SIZES, tokens
from refusals import assert_refused
from scales import probed, rule_scale
from sweep.inputs import inputs_of
from sweep.judge import build
from sweep.scale import AGREES, compare, measured_calls

import isentrope.hf
from isentrope import ScaleRule

YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}


def of(kind, **keys):
    """Returns the configuration; skips if this version of transformers lacks the family."""
    if not hasattr(hf, kind):
        pytest.skip(f"transformers {hf.__version__} has no {kind}")
    return getattr(hf, kind)(**keys)


FAMILIES = [(name, {}) for name in ("mistral", "qwen3", "gemma2", "gemma3_text", "gemma3n_text", "gemma4_text", "gpt_neox", "mistral4", "zamba2")]


@pytest.mark.parametrize("name, keys", [*FAMILIES, ("llama", {"rope_parameters": YARN}), ("granite", {"attention_multiplier": 0.3})])
def test_the_reported_scale_is_the_one_of_the_code(name, keys):
    model = build(name, "isentrope", **keys)
    assert compare(model, measured_calls(model, inputs_of(model))) == AGREES


LONG = {
    "ministral3": lambda: of("Ministral3Config", **GQA, rope_parameters={
        "rope_type": "default", "rope_theta": 1e4, "llama_4_scaling_beta": 0.5, "original_max_position_embeddings": 4}),
    "llama4": lambda: of("Llama4TextConfig", **GQA, intermediate_size_mlp=48, num_local_experts=1, floor_scale=3,
                         attn_scale=0.5, no_rope_layers=[1, 0], attention_chunk_size=64),
    "beam": lambda: of("BeamConfig", **GQA, moe_intermediate_size=16, num_experts=2, num_experts_per_tok=1, n_group=1,
                       topk_group=1, mlp_layer_types=["dense", "dense"], sliding_window=64),
    "inkling2": lambda: of("Inkling2TextConfig", **GQA, log_scaling_n_floor=4, log_scaling_alpha=0.5,
                           layer_types=["hybrid_sliding", "hybrid"]),
    "mistral_large4": lambda: of("MistralLarge4TextConfig", **SIZES, q_lora_rank=16, kv_lora_rank=8, qk_nope_head_dim=8,
                                 qk_rope_head_dim=8, v_head_dim=8, head_dim=8, index_topk=64, index_n_heads=2,
                                 index_head_dim=16, n_routed_experts=2, num_experts_per_tok=1, moe_intermediate_size=16,
                                 mlp_layer_types=["dense", "dense"], rope_parameters=YARN | {"mscale_all_dim": 1.0}),
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
def test_the_reported_scale_by_length_is_that_of_the_code(name):
    model = hf.AutoModel.from_config(LONG[name]())
    model_rule = isentrope.hf.model_rule(model)
    assert model_rule.known and model_rule.by_length
    layers, rows = 0, range(24, 48)  # convolutions over tokens make the first rows differ
    for row in probed(model, length=48):
        growth = row.growth[:, rows.start :] / row.growth[:, rows.start, None]
        if torch.allclose(growth, torch.ones_like(growth), atol=1e-5):
            continue
        layers += 1
        want = torch.tensor([rule_scale(model, position, position + 1, row.dim) for position in rows], dtype=torch.float64)
        torch.testing.assert_close(growth, (want / want[0]).expand_as(growth), rtol=1e-5, atol=1e-6)
    start = name == "mistral_large4"  # its weights begin as 0 and 1, and the rule is that of their values
    assert layers == (0 if start else 2 if model_rule.layers == "all" else 1)


def test_mistral_large_4_with_weights_is_an_ssmax_of_the_position():
    model = hf.AutoModel.from_config(LONG["mistral_large4"]())
    assert str(isentrope.hf.model_rule(model).rule).startswith("ssmax(s=0,b=1,length=position,offset=1) * yarn_mscale")
    for name, weight in model.named_parameters():
        if "softmax_scaling" in name:
            torch.nn.init.uniform_(weight, 0.5, 1.5)
    for row in probed(model, length=6):
        scaling = row.module.softmax_scaling
        rule = ScaleRule.ssmax(scaling.scale.tolist(), scaling.bias.tolist(), length="position", offset=1)
        want = torch.tensor([[rule.lambda_(n, 16, head) for n in range(1, 7)] for head in range(4)], dtype=torch.float64)
        torch.testing.assert_close(row.growth, want / want[:, :1], rtol=1e-5, atol=1e-6)


class MadeUp(hf.LlamaConfig):
    model_type = "made_up"


def made_up(**keys):
    return hf.LlamaForCausalLM._from_config(MadeUp(**GQA, **keys), attn_implementation="isentrope").eval()


def test_a_family_that_nobody_read_has_no_rule():
    model_rule = isentrope.hf.model_rule(made_up())
    assert (model_rule.rule, model_rule.known, model_rule.by_length) == (None, False, False)
    assert isentrope.hf.model_rule(made_up(rope_parameters=YARN)).by_length


def test_a_rule_on_a_family_that_nobody_read_warns_and_is_applied():
    model, ids = made_up(), tokens()
    before = model(input_ids=ids).logits
    with pytest.warns(UserWarning, match=r"got 'made_up'\. logn.* multiplies the scale in the model's code. Pass force=True"):
        isentrope.hf.set_rule(model, "logn(2)")
    assert (model(input_ids=ids).logits - before).abs().max() > 1e-6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        isentrope.hf.set_rule(model, "logn(2)", force=True)
        isentrope.hf.set_rule(model, None)


def test_a_rule_on_top_of_keys_by_length_is_refused_also_in_such_a_family():
    message = "must not scale by length already; got a family that is not known with .*rope_type"
    assert_refused(message, isentrope.hf.set_rule, made_up(rope_parameters=YARN), "logn(8)")


@pytest.mark.parametrize("name", [*LONG, "yarn"])
def test_a_second_rule_by_length_is_refused_unless_forced(name):
    config = hf.LlamaConfig(**GQA, rope_parameters=YARN) if name == "yarn" else LONG[name]()
    model = hf.AutoModel.from_config(config, attn_implementation="isentrope")
    assert isentrope.hf.model_rule(model).by_length
    assert_refused("must not scale by length already", isentrope.hf.set_rule, model, "logn(8)")
    isentrope.hf.set_rule(model, "logn(8)", force=True)
