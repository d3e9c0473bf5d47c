"""Functions on models with invalid values: refused by the argument's name, or successful."""

import pytest
import tiny_model
import torch
import transformers
from long_terrible_values import two_tests_of
from transformers import masking_utils

import isentrope.hf
from isentrope.models import monitor

CALIBRATION = {
    "kind": "calibration", "version": 1, "trained_length": 64, "rule": "scaled(gain=1.1)",
    "rope": {"parameters": {"rope_type": "yarn", "factor": 2.0}},
}  # fmt: skip


def model():
    return tiny_model.model("isentrope", max_position_embeddings=64)


def applied(model, calibration, always):
    try:
        isentrope.hf.apply(model, calibration, always=always)
    except OSError as error:  # a missing file
        raise ValueError(str(error)[:200]) from error


def recorded(wanted):
    with isentrope.hf.record(wanted):
        pass


CALLS = {
    "set_rule": (isentrope.hf.set_rule, {"model": None, "rule": "logn(8)", "layers": [0], "force": False}),
    "model_rule": (isentrope.hf.model_rule, {"model": None}),
    "attentions": (isentrope.hf.attentions, {"model": None}),
    "apply": (applied, {"model": None, "calibration": CALIBRATION, "always": False}),
    "record": (recorded, {"wanted": "entropy"}),
    "Monitor": (isentrope.Monitor, {"model": None}),
    "row_mask": (
        isentrope.hf.row_mask,
        {"batch_size": 2, "q_length": 4, "kv_length": 12, "q_offset": 8, "kv_offset": 0,
         "mask_function": masking_utils.causal_mask_function, "attention_mask": torch.arange(12) >= torch.tensor([[5], [0]]),
         "allow_is_causal_skip": True, "allow_is_bidirectional_skip": False, "device": "cpu"},
    ),
    "monitor.callback": (monitor.callback, {"every": 10, "below": 0.05}),
}
ALSO = {"wanted": "statistics|return_stats", "calibration": "document|cannot read", "rule": "text"}


test_a_model_is_what_is_right, test_what_is_terrible_of_a_model_too = two_tests_of(
    CALLS, ALSO, lambda right: {"model": model()} if "model" in right else {}, callbacks=("mask_function",)
)


@pytest.mark.parametrize("value", [[], {}, "", 0, False, "yarn:2", {"rope_type": 5}, {"factor": 2}, [1, 2]])
def test_a_damaged_stretch_of_a_configuration_is_named(tmp_path, value):
    llama = model()
    llama.config.isentrope_rope = value
    llama.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="isentrope_rope"):
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="isentrope")
