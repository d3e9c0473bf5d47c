"""Some twenty architectures of transformers give the eager attention's numbers; long_architectures has all."""

import pytest
import torch
from sweep.judge import judge
from transformers import AttentionInterface

import isentrope.hf
from isentrope.hf.register import attention_forward

# The first ten once gave other numbers: sparse attention, masks that models change, modules that do not say they are causal.
RIGHT = [
    "deepseek_v32", "deepseek_v4", "glm_moe_dsa", "axk2", "hy_v4", "nllb-moe", "bigbird_pegasus", "pegasus_x", "splinter",
    "llama", "qwen3", "gemma3_text", "gpt_oss", "gpt2", "phi3", "bert", "modernbert", "bart", "t5", "whisper", "clip", "llava",
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
    found = judge(name)
    assert found["verdict"] == "right", found


def test_a_fixed_table_of_attentions_is_refused():
    found = judge("git")
    assert found["verdict"] == "refused" and 'attn_implementation="eager"' in found["why"]


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
    found = judge(name)
    assert found["verdict"] == "wrong" and all(case in found["why"] for case in cases), found
