"""torch's function of attention while somebody observes calls, which it passes on to isentrope."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from isentrope._core.observers import listeners, running
from isentrope.sdpa.activation import active_rule
from isentrope.sdpa.drop_in import under_rule

_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")

# One function for all observers, because compiled code would be recompiled for another.
_own: Callable[..., Tensor] = functional.scaled_dot_product_attention
_observers = 0


def _observed(*args: Any, **options: Any) -> Tensor:
    if running.maxima is not None:  # instead of torch's kernels, which do not return the largest logit
        arguments = {**dict(zip(_ARGUMENTS, args)), **options}
        return under_rule(active_rule(arguments["query"]), **arguments)
    output = _own(*args, **options)
    if not torch.compiler.is_compiling() and listeners.members:
        arguments = {**dict(zip(_ARGUMENTS, args)), **options, "dropout_p": 0.0}
        value = arguments["value"]
        if value.is_cpu and not value.is_nested:
            arguments["value"] = value[..., :1]  # statistics do not depend on values
        with torch.no_grad():
            under_rule(active_rule(arguments["query"]), **arguments)
    return output


def observe() -> None:
    """Makes torch's function observed, until each call of this one has had one of `leave`."""
    global _own, _observers
    if _observers == 0:
        _own = functional.scaled_dot_product_attention
        functional.scaled_dot_product_attention = _observed
    _observers += 1


def leave() -> None:
    global _observers
    _observers -= 1
    if _observers == 0:
        functional.scaled_dot_product_attention = _own
