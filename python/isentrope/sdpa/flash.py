"""isentrope as one of torch's flash attention implementations, from torch 2.11 on.

    torch.nn.attention.activate_flash_attention_impl("ISENTROPE")
    torch.nn.attention.restore_flash_attention_impl()
"""

from __future__ import annotations

import warnings

import torch

from isentrope._core.library import CHECKED
from isentrope.rules import ScaleRule, rule_text
from isentrope.sdpa import gpu
from isentrope.sdpa.activation import Activation, check_inactive
from isentrope.sdpa.flash_operators import FlashOperators

_rule = "standard"


def set_flash_rule(rule: str | ScaleRule = "standard") -> None:
    """Sets the rule of the next `activate_flash_attention_impl("ISENTROPE")`, which has no argument for it.

    Raises ValueError for an invalid rule.
    """
    global _rule
    _rule = CHECKED.rule_text(rule_text(rule, None))


def activate() -> Activation:
    """Replaces torch's flash attention operators on GPUs.

    Under a rule it also replaces `scaled_dot_product_attention`, because calls that torch does not send to flash
    attention would ignore the rule. Raises RuntimeError if `isentrope.sdpa.activate` is active.
    """
    check_inactive("activate_flash_attention_impl")
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")  # the caller asks for the override
        FlashOperators(_rule).register(library)
        if _rule != "standard":
            gpu.replace(library, _rule)
    return Activation(library, _rule, replaces_cpu=False)
