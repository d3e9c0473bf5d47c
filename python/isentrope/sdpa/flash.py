"""isentrope as one of torch's flash attention implementations, from torch 2.11 on.

    torch.nn.attention.activate_flash_attention_impl("ISENTROPE")
    torch.nn.attention.restore_flash_attention_impl()
"""

from __future__ import annotations

import warnings

import torch

from isentrope._core.library import CHECKED
from isentrope.rules import ScaleRule, rule_text

NAME = "ISENTROPE"
_rule = "standard"


class _Handle:
    """Ends the implementation; torch calls `remove`."""

    def __init__(self, library: torch.library.Library) -> None:
        self._library = library

    def remove(self) -> None:
        """Restores torch's own kernels. Calling it again does nothing."""
        self._library._destroy()


def set_flash_rule(rule: str | ScaleRule = "standard") -> None:
    """Sets the rule of the next `activate_flash_attention_impl("ISENTROPE")`, which has no argument for it.

    Raises ValueError for an invalid rule.
    """
    global _rule
    _rule = CHECKED.rule_text(rule_text(rule, None))


def _activate() -> _Handle:
    from isentrope.sdpa import activation, gpu

    if activation._active is not None:
        raise RuntimeError(
            "[activate_flash_attention_impl] isentrope.sdpa.activate must not be active, because it replaces the same function; "
            "got both: call remove() of the activation first"
        )
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        # The caller asks for the override.
        warnings.filterwarnings("ignore", "Warning only once for all operators")
        gpu.replace(library, _rule)
    return _Handle(library)


def register() -> None:
    """Registers the implementation with torch, without activating it. Versions before 2.11 have no registry."""
    register_impl = getattr(torch.nn.attention, "register_flash_attention_impl", None)
    if register_impl is not None:
        register_impl(NAME, register_fn=_activate)
