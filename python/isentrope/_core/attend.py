"""Calls the operator `attention` on the path that torch's current state requires."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from isentrope._core import observers
from isentrope._core.autograd import differentiable, requires_gradients
from isentrope._core.call import Call
from isentrope._core.derivatives import transformed
from isentrope._core.library import LSE, OPS, below_autograd
from isentrope.statistics import StatisticNames, statistic_names, unpack, wanted_bits

_ATTENTION = OPS.attention.default
_WITHOUT_GRADIENTS = below_autograd(_ATTENTION)


def attend(call: Call, return_stats: StatisticNames, first_head: int | None = None) -> Any:
    """Computes a call. first_head: index of its first head in the module, for ranks that have a part of the heads."""
    names = statistic_names(return_stats)
    # Derivatives need lse.
    wanted = (torch.is_grad_enabled() or transformed()) * LSE if names is None else wanted_bits(names)
    eager = False
    operator: Any
    if torch.compiler.is_compiling():
        operator = _ATTENTION
    elif transformed():
        operator = differentiable
    else:
        eager = True
        with_gradients = torch.is_grad_enabled() and requires_gradients(call)
        operator = differentiable if with_gradients else _WITHOUT_GRADIENTS
    wanted |= observers.wanted(eager)
    output, statistics, support = operator(*call, wanted)
    observers.hear(eager, call, wanted, statistics, support, first_head)
    return output if names is None else (output, unpack(names, wanted, statistics, support))


def any_gradient(values: Iterable[object]) -> bool:
    """Returns whether reverse mode differentiates with respect to one of some values."""
    return torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in values)


def any_tangent(values: Iterable[object]) -> bool:
    """Returns whether forward mode differentiates with respect to one of some values."""
    tensors = (x for x in values if isinstance(x, Tensor))
    return forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(x).tangent is not None for x in tensors)
