"""The rule of a model that vLLM serves."""

from __future__ import annotations

import os
from typing import Any

from isentrope.hf.rules import rule_of_config
from isentrope.rules import ScaleRule, rule_text


def served_rule(config: Any, scale: float) -> str:
    """Returns the text of ISENTROPE_RULE with the model's own scale, or a constant scale without the variable.

    config: the model's configuration. Raises ValueError for an invalid rule, or for a model that scales by length already.
    """
    text = os.environ.get("ISENTROPE_RULE", "")
    if not text:
        return rule_text("standard", scale)
    own = rule_of_config(config)
    if own.by_length:
        raise ValueError(
            f"[isentrope.vllm] ISENTROPE_RULE must be empty for a model that scales by length already; got {text!r} and "
            f"{', '.join(own.keys)}"
        )
    return rule_text(ScaleRule(text), scale)
