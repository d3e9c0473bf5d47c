"""Calls the operator `attention` on the path that torch's current state requires."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from isentrope._core import listening, maxima, receiving
from isentrope._core.autograd import differentiable, requires_gradients
from isentrope._core.call import Call
from isentrope._core.derivatives import transformed
from isentrope._core.library import LSE, OPS, below_autograd
from isentrope.statistics import StatisticNames, Statistics, statistic_names, unpack, wanted_bits

_ATTENTION = OPS.attention.default
_WITHOUT_GRADIENTS = below_autograd(_ATTENTION)


def attend(call: Call, return_stats: StatisticNames, first_head: int | None = None) -> Any:
    """Computes a call. first_head: index of its first head in the module, for ranks that have a part of the heads."""
    names = statistic_names(return_stats)
    # Derivatives need lse.
    wanted = (torch.is_grad_enabled() or transformed()) * LSE if names is None else wanted_bits(names)
    if maxima.running.maxima is not None:
        wanted |= maxima.BITS
    compiling = torch.compiler.is_compiling()
    listener = None
    if compiling:
        operator = _ATTENTION
    elif transformed():
        operator = differentiable
    else:
        listener = listening.listener
        if listener is not None:
            wanted |= listener.bits
        wanted |= LSE if receiving.hearers else 0
        with_gradients = torch.is_grad_enabled() and requires_gradients(call)
        operator = differentiable if with_gradients else _WITHOUT_GRADIENTS
    output, statistics, support = operator(*call, wanted)
    if listener is not None:
        heard = unpack(listener.names, wanted, statistics, support)
        listener.hear(Statistics(*(x if x is None else x.detach() for x in heard)))
    if receiving.hearers and not (compiling or transformed()):
        receiving.pass_on(call, unpack(("lse",), wanted, statistics, support).lse.detach())
    maxima.hear(call, wanted, statistics, support, first_head)
    return output if names is None else (output, unpack(names, wanted, statistics, support))


def has_tangent(value: object) -> bool:
    return isinstance(value, Tensor) and forward_ad.unpack_dual(value).tangent is not None
