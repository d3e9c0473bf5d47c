"""isentrope behind `torch.nn.functional.scaled_dot_product_attention`, on request.

    with isentrope.sdpa.activate("entropy_invariant(base=512)"):
        model(tokens)

    torch.nn.attention.activate_flash_attention_impl("ISENTROPE")       # on GPUs, under the rule of set_flash_rule
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from isentrope.sdpa.activation import Activation, activate
    from isentrope.sdpa.flash import set_flash_rule


def _activate_flash() -> Activation:
    from isentrope.sdpa import flash

    return flash.activate()


# torch 2.10 has a registry, but no function that ends the active implementation.
if hasattr(torch.nn.attention, "restore_flash_attention_impl"):
    torch.nn.attention.register_flash_attention_impl("ISENTROPE", register_fn=_activate_flash)

__all__ = ["Activation", "activate", "set_flash_rule"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # imported by its first use, because most programs do not use it
        module = "flash" if name == "set_flash_rule" else "activation"
        value = globals()[name] = getattr(importlib.import_module(f"isentrope.sdpa.{module}"), name)
        return value
    raise AttributeError(f"module 'isentrope.sdpa' has no attribute {name!r}")
