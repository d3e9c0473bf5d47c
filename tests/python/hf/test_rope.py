"""Stretched RoPE: names of stretches, and their frequencies."""

import json

import pytest
import torch
import transformers as hf
from tiny_model import CONFIG, model

from isentrope.hf import rope


@pytest.mark.parametrize("text", ["linear:4", "dynamic:2", "ntk:8", "yarn:4", "none"])
def test_a_stretch_is_its_text(text):
    stretch = rope.parse(text)
    assert stretch.text == text
    if text != "none":
        again = rope.parse(json.dumps(stretch.parameters))
        assert again.parameters == stretch.parameters and again.kind == stretch.kind


@pytest.mark.parametrize("text", ["yarn", "yarn:", "yarn:0.5", "yarn:nan", "spiral:4", "{", '{"factor": 2}', '{"rope_type": "x"}', ""])
def test_a_stretch_that_is_none_is_refused_by_name(text):
    with pytest.raises(ValueError, match=r"\[rope\].*got"):
        rope.parse(text)


@pytest.mark.parametrize("text", ["linear:4", "ntk:4", "yarn:4"])
def test_frequencies_are_those_of_transformers_without_its_factor_on_the_logits(text):
    llama = model()
    stretch = rope.parse(text)
    parameters = dict(llama.config.rope_parameters)
    if stretch.kind == "ntk":
        theta = parameters["rope_theta"] * 4 ** (8 / 6)
        want, _ = llama.model.rotary_emb.compute_default_rope_parameters(
            hf.LlamaConfig(**CONFIG, max_position_embeddings=512, rope_parameters={"rope_type": "default", "rope_theta": theta})
        )
    else:
        extra = {"original_max_position_embeddings": 512} if stretch.kind == "yarn" else {}
        config = hf.LlamaConfig(**CONFIG, max_position_embeddings=512, rope_parameters=parameters | {"rope_type": stretch.kind, "factor": 4.0} | extra)
        want, _ = hf.modeling_rope_utils.ROPE_INIT_FUNCTIONS[stretch.kind](config)
    trained_rope = llama.model.rotary_emb
    with rope.stretched(llama, stretch):
        stretched_rope = llama.model.rotary_emb
        torch.testing.assert_close(stretched_rope.inv_freq, want)
        assert stretched_rope.attention_scaling == 1
    assert llama.model.rotary_emb is trained_rope and llama.config.rope_parameters == parameters


def test_a_model_that_is_stretched_already_is_refused():
    llama = model()
    rope.stretch_rope(llama, rope.parse("yarn:4"))
    with pytest.raises(ValueError, match="must not stretch RoPE already; got rope_type 'yarn'"):
        rope.stretch_rope(llama, rope.parse("linear:2"))
    assert rope.trained_length(llama) == 512
