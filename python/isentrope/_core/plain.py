"""Fast path for the most frequent calls: q, k and v, a rule and a causal mask, without observers.

For a few rows most time is torch's unpacking of an operator's arguments, so these calls have operators without further
ones. Code that traces, transforms or observes sees the general operator instead. If these operators refuse a call, the
general path computes it or raises its error.
"""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from isentrope._core.call import Call, alignment
from isentrope._core.derivatives import backward_operator
from isentrope._core.library import BITS, KERNELS, LSE, OPS, checked
from isentrope._core.observers import listeners, running
from isentrope.rules import rule_text
from isentrope.statistics import StatisticNames, Statistics, statistic_names

OPTIONS = frozenset(("rule", "scale", "causal", "is_causal"))

for _name in ("attention.plain", "attention_backward.plain"):
    KERNELS.impl(_name, torch.library.fallthrough_kernel, "Autograd")
_attention, _backward = (  # the C++ handles, private to torch, save a Python call
    getattr(operator, "_op", operator) for operator in (OPS.attention.plain, OPS.attention_backward.plain)
)


def attend_plainly(
    q: Tensor, k: Tensor, v: Tensor, return_stats: StatisticNames, rule: Any = "standard", scale: float | None = None,
    causal: bool | str = False, is_causal: bool = False,
) -> Any:  # fmt: skip
    """Returns the results of `attention`, or None if the general path must be used. Not traced by compilers."""
    if not (type(q) is type(k) is type(v) is Tensor and (q.is_cpu or q.is_cuda or q.is_xpu)) or _needs_dispatch(q):
        return None
    if is_causal is not False:
        if is_causal is not True or causal is not False:
            return None
        causal = "top_left"
    names = None if return_stats is False else statistic_names(return_stats)
    text, number = rule_text(rule, scale), alignment(causal)
    try:
        if torch.is_grad_enabled() and torch._C._any_requires_grad(q, k, v):
            return _apply(q, k, v, (text, number)) if names is None else None
        if names is None:
            return _attention(q, k, v, text, number, 0)[0]
        wanted, named = _statistics(names)
        results = _attention(q, k, v, text, number, wanted)
    except (RuntimeError, ValueError):
        return None
    output, results[0] = results[0], None
    return output, Statistics._make(named(results))


def _needs_dispatch(q: Tensor) -> bool:
    return bool(
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._is_torch_function_mode_enabled()
        or torch._C._are_functorch_transforms_active()
        or torch._C._get_tracing_state() is not None
        or forward_ad._current_level >= 0
        or listeners.members
        or running.maxima is not None
        or torch._C._is_any_autocast_enabled()
    )


@lru_cache
def _statistics(names: tuple[str, ...]) -> tuple[int, Any]:
    """Returns the bits of those names, and a function that arranges the statistics as fields of `Statistics`."""
    places = {name: index for index, name in enumerate((name for name in BITS if name in names), 1)}
    return sum(BITS[name] for name in places), itemgetter(*(places.get(name, 0) for name in Statistics._fields))


class _Plain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, numbers: tuple[str, int]) -> Tensor:
        output, lse = _attention(q, k, v, *numbers, LSE)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, output, lse)
        ctx.numbers = numbers
        return output

    @staticmethod
    def backward(ctx: Any, d_output: Tensor | None) -> tuple:
        if d_output is None:
            return (None,) * 4
        q, k, v, output, lse = ctx.saved_tensors
        text, number = ctx.numbers
        if type(d_output) is Tensor and not (torch.is_grad_enabled() or torch.compiler.is_compiling() or _needs_dispatch(q)):
            return *_plain_backward(q, k, v, text, number, output, lse, d_output), None
        call = Call(q, k, v, rule=text, causal=number)
        gradients = backward_operator()(*call, LSE, output, lse[None], d_output, None, False, False, False, False)
        return *gradients[:3], None


_plain_backward = checked(_backward, names="qkv")
# Skips the checks for torch.func in Function.apply, which is not active here.
_apply = super(torch.autograd.Function, _Plain).apply
