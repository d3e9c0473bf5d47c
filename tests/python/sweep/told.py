"""Compares the scale that `model_rule` tells of a model with the one that the model passes to its attention."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from scales import rotary_factor, rule_scale
from torch import nn

import isentrope.hf

# These multiply queries or keys by a constant, which is part of the told scale and not of the one that is passed.
# test_hf_scales measures that of Falcon-H1 and Muse.
FACTOR_ON_Q_OR_K = {
    "dots3_note", "esm", "falcon_h1", "longcat_flash", "moss_transcribe_diarize_audio", "muse_glimmer_text", "muse_spark_text",
    "openai_privacy_filter", "opt", "qwen2_audio_encoder", "voxtral_encoder", "whisper",
}  # fmt: skip
VERDICTS = "agrees", "not known", "multiplied into queries or keys"


def told(model: nn.Module, passed: Collection[tuple[int, float]]) -> str | None:
    """Returns one of VERDICTS, or both scales; None for a model of several parts, which are judged on their own.

    passed: head dimension and scale of each call of the attention. A rule by length is compared at its first position.
    """
    config = model.config
    if config.get_text_config() is not config:
        return None
    if config.model_type in FACTOR_ON_Q_OR_K:
        return "multiplied into queries or keys"
    if not isentrope.hf.model_rule(model).known:
        return "not known"
    factor = rotary_factor(model)
    for dim, scale in sorted(passed):
        own, rule = scale * factor, rule_scale(model, 0, 1, dim)
        if own != pytest.approx(rule, rel=1e-4):
            return f"model_rule tells {rule:.6g} for a head dimension of {dim}; the model passes {own:.6g}"
    return "agrees"
