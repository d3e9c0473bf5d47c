"""Some architectures of transformers give the eager attention's numbers; long_architectures has all."""

import math

import pytest
import torch
import transformers
from sweep.inputs import inputs_of
from sweep.judge import build, judge
from sweep.scale import AGREES, compare, factor_on, measured_calls
from transformers import AttentionInterface
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import isentrope.hf
from isentrope.hf.register import attention_forward

# The first four once gave other numbers: sparse attention, masks that models change, modules that do not say they are causal.
RIGHT = [
    "deepseek_v32", "nllb-moe", "bigbird_pegasus", "splinter", "llama", "gemma2", "gpt_oss", "gpt2", "modernbert", "whisper",
    "llava", "informer", "qwen3_vl_vision",
]  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    AttentionInterface.register("isentrope", attention_forward)


@pytest.mark.parametrize("name", RIGHT)
def test_an_architecture_is_right(name):
    result = judge(name)
    assert result["verdict"] == "right", result


@pytest.mark.parametrize("name", ["beam", "inkling2_text", "mistral_large4_text", "muse_spark_text"])
def test_an_architecture_of_newer_transformers_is_right(name):
    if name not in CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {name}; make test-transformers runs this")
    result = judge(name)
    assert result["verdict"] == "right" and result["scale"] == "agrees", result


def test_a_family_that_turns_the_mask_of_eager_round_is_compared_with_sdpa():
    result = judge("nemotron_asr_streaming_encoder")
    assert result["verdict"] == "right" and result["cases"]["plain"].startswith("as under sdpa"), result


def test_an_attention_of_a_models_own_gets_the_masks_that_it_gets_under_eager():
    result = judge("autoformer")
    assert result["verdict"] == "no attention", result


def test_a_fixed_table_of_attentions_is_refused():
    result = judge("git")
    assert result["verdict"] == "refused" and 'attn_implementation="eager"' in result["why"]


def test_blocks_of_keys_that_a_model_chooses_are_right_but_for_rows_without_a_key():
    result = judge("minimax_m3_vl_text")
    cases = {case for case, error in result["cases"].items() if isinstance(error, float)}
    assert result["verdict"] == "right but for padding" and result["why"].startswith("greedy, static cache: rows that see no key"), result
    assert cases == {"plain", "mask of ones", "right padding", "gradient", "training", "checkpointing", "float mask", "bool mask"}


@pytest.mark.parametrize("name", ["t5", "clip"])
def test_gradients_of_models_are_compared_whatever_their_embeddings_are_called(name):
    cases = judge(name)["cases"]
    assert all(isinstance(cases[case], float) for case in ("gradient", "training", "checkpointing")), cases


def test_cases_in_which_eager_raises_are_recorded():
    result = judge("esm")
    assert result["verdict"] == "right" and result["cases"]["float mask"].startswith("eager raises RuntimeError: The size of tensor")


def without_mask(module, query, key, value, attention_mask, **options):
    return attention_forward(module, query, key, value, None, **options)


def without_scale(module, query, key, value, attention_mask, scaling=None, **options):
    return attention_forward(module, query, key, value, attention_mask, scaling=0.9 * scaling, **options)


@pytest.mark.parametrize(("name", "mistake", "cases"), [
    ("llama", without_mask, {"left padding", "float mask", "packed"}),
    ("bert", without_mask, {"left padding", "right padding"}),
    ("llama", without_scale, {"plain", "gradient", "greedy"}),
])  # fmt: skip
def test_the_judge_notices(name, mistake, cases, monkeypatch):
    monkeypatch.setattr(isentrope.hf.register, "attention_forward", mistake)
    result = judge(name)
    assert result["verdict"] == "wrong" and all(case in result["why"] for case in cases), result


YARN = 0.1 * math.log(32) + 1  # on queries and on keys


# Heads have 8 dimensions, those of LongCat 16, and the factor of its queries is sqrt(hidden_size / q_lora_rank).
@pytest.mark.parametrize(("name", "keys", "on_queries", "on_keys"), [
    ("llama", {}, 1, 1), ("gpt2", {}, 1, 1), ("opt", {}, 8**-0.5, 1), ("gpt_oss", {}, YARN, YARN),
    ("openai_privacy_filter", {}, 8**-0.25 * YARN, 8**-0.25 * YARN), ("falcon_h1", {"key_multiplier": 0.25}, 1, 0.25),
    ("muse_glimmer_text", {"qk_scale_factor": 3.5}, 3.5, 1), ("longcat_flash", {}, 2**0.5, 1), ("zaya", {}, 1, 1),
])  # fmt: skip
def test_factors_on_queries_and_keys_are_measured(name, keys, on_queries, on_keys):
    model = build(name, "isentrope", **keys)
    calls = measured_calls(model, inputs_of(model))
    assert len(calls) >= 2 and compare(model, calls) == AGREES
    for call in calls:
        assert (call.on_queries, call.on_keys) == pytest.approx((on_queries, on_keys), rel=1e-4)


def test_no_factor_is_found_between_other_numbers():
    projected = torch.randn(2, 12, 32)
    heads = projected.unflatten(-1, (4, 8)).transpose(1, 2)
    assert factor_on(3 * heads, [torch.randn(2, 12, 32), projected]) == pytest.approx(3)
    assert factor_on(3 * heads, [torch.randn(2, 12, 32)]) is None
    assert factor_on(heads + 0.1, [projected]) is None
    assert factor_on(heads * torch.linspace(1, 2, 4)[:, None, None], [projected]) is None
    assert factor_on(heads * torch.linspace(1, 2, 12)[:, None], [projected]) is None


def test_a_factor_that_model_rule_does_not_tell_is_noticed(monkeypatch):
    from transformers.models.llama import modeling_llama

    rotate = modeling_llama.apply_rotary_pos_emb

    def rotate_and_double(*arguments, **options):
        query, key = rotate(*arguments, **options)
        return 2 * query, key

    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", rotate_and_double)
    result = judge("llama")
    assert result["verdict"] == "wrong" and result["why"] == f"scale: {result['scale']}", result
    assert result["scale"] == "model_rule tells 0.353553 for a head dimension of 8; the model's code has 0.707107"
