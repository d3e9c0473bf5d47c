"""Gradients and tangents of the operators, for autograd, torch.func and dual numbers.

The operator `attention` is reached in two ways:

- `Differentiable`: eager calls. For a few rows the dispatcher's kernel would take four times as long;
- the dispatcher's kernel: models that torch compiles or exports, whose graphs contain the operator and no Python class, and
  direct calls of the operator.

Unobserved calls of q, k, v, a rule and a causal mask use neither: `plain.py` has a faster path.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from isentrope._core import functorch
from isentrope._core.call import TENSORS, Call
from isentrope._core.derivatives import (
    DIFFERENTIABLE_AT, Backward, OperatorFunction, SecondOrder, SecondTangent, Tangent, backward_operator, tangents_of, transformed,
)  # fmt: skip
from isentrope._core.library import BITS, KERNELS, LSE, OPS, SUPPORT, below_autograd
from isentrope.statistics import with_needs

_with_gradients = itemgetter(*DIFFERENTIABLE_AT)
_attention = below_autograd(OPS.attention.default)


def requires_gradients(call: Call) -> bool:
    # Passing all arguments, most of which are no tensors, takes a microsecond more.
    return torch._C._any_requires_grad(*_with_gradients(call))


def _save(ctx: Any, args: tuple, output: tuple[Tensor, ...]) -> None:
    tensors = (*args[:TENSORS], output[0], output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)
    if transformed() or torch.compiler.is_compiling():
        ctx.save_for_forward(*tensors)
    ctx.numbers = args[TENSORS:]


def _needed_statistics(wanted: int, statistics: Tensor, gradients: tuple[Tensor | None, ...]) -> tuple[int, Tensor, Tensor | None]:
    """Reduces bits, statistics and gradients to what the backward pass needs, since it computes with zeros too."""
    names = [name for name, bit in BITS.items() if wanted & bit & ~SUPPORT]
    upstream = {name: gradient for name, gradient in zip(names, gradients, strict=True) if gradient is not None}
    needed = with_needs(sum(BITS[name] for name in upstream))
    needed_names = [name for name in names if needed & BITS[name]]
    if needed_names == names[:1]:
        statistics = statistics[:1]
    elif needed_names != names:
        statistics = torch.stack([piece for name, piece in zip(names, statistics) if name in needed_names])
    if not upstream:
        return needed, statistics, None
    zero = torch.zeros_like(statistics[0])
    return needed, statistics, torch.stack([upstream.get(name, zero) for name in needed_names])


def _six_gradients(ctx: Any, d_output: Tensor | None, d_statistics: Any, wants: Any) -> tuple:
    """Returns the gradients of q, k, v, and on request of bias, lambda and sinks. d_statistics: in one tensor, or of each."""
    *tensors, output, statistics = ctx.saved_tensors
    wanted = _with_lse(ctx, "backward")
    if type(d_statistics) is tuple:
        wanted, statistics, d_statistics = _needed_statistics(wanted, statistics, d_statistics)
    elif d_statistics is not None:
        d_statistics = d_statistics.contiguous()
    arguments = (*tensors, *ctx.numbers[:-1], wanted, output, statistics, d_output, d_statistics, *wants, False)
    gradients = backward_operator()(*arguments)
    return gradients if all(wants) else (*gradients[:3], *(x if want else None for x, want in zip(gradients[3:], wants)))


def _with_lse(ctx: Any, who: str) -> int:
    """Returns the bits of the saved statistics. Raises ValueError if lse is not among them."""
    if not ctx.numbers[-1] & LSE:
        raise ValueError(
            f"[attention] {who} needs a forward pass that was run, compiled or exported with gradients enabled; "
            "got one without"
        )
    return ctx.numbers[-1]


class _Attention(OperatorFunction):
    """The operator, whose statistics are one tensor."""

    operator = OPS.attention.default
    compute = staticmethod(_attention)
    picked = _with_gradients

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
        _save(ctx, inputs[-1], output)
        ctx.mark_non_differentiable(output[2])

    @staticmethod
    def backward(ctx: Any, d_output: Tensor | None, d_statistics: Tensor | None, _: Any) -> tuple:
        if d_output is None and d_statistics is None:
            return (None,) * 7
        return *_six_gradients(ctx, d_output, d_statistics, ctx.needs_input_grad[3:6]), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> tuple:
        *tensors, output, statistics = ctx.saved_tensors
        wanted = _with_lse(ctx, "the forward mode")
        return *tangents_of((*tensors, *ctx.numbers[:-1], wanted, output, statistics), tangents[:6]), None


class Differentiable(_Attention):
    """The operator, and every statistic as a result of its own, to know unneeded gradients. Each argument of `apply` costs a
    call of 16 rows 0.3 % of its time."""

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, ...]:
        output, statistics, support = _attention(*args[-1])
        return output, statistics, support, *statistics.unbind(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
        _save(ctx, inputs[-1], output)
        ctx.mark_non_differentiable(*output[1:3])

    @staticmethod
    def backward(ctx: Any, d_output: Tensor | None, _: Any, __: Any, *d_statistics: Tensor | None) -> tuple:  # type: ignore[override]
        if d_output is None and all(gradient is None for gradient in d_statistics):
            return (None,) * 7
        return *_six_gradients(ctx, d_output, d_statistics, ctx.needs_input_grad[3:6]), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> tuple:
        t_output, t_statistics, _ = _Attention.jvp(ctx, *tangents)
        slices = (None,) * len(ctx.saved_tensors[-1]) if t_statistics is None else t_statistics.unbind(0)
        return t_output, None, None, *slices


# Skips the checks for torch.func in Function.apply, which is not active here.
_apply = super(torch.autograd.Function, Differentiable).apply


def differentiable(*args: Any) -> tuple[Tensor, Tensor | tuple[Tensor, ...], Tensor]:
    """Returns the output, the float statistics, as one tensor under torch.func, and the support."""
    if torch._C._are_functorch_transforms_active():
        return OPS.attention.default(*args)
    output, _, support, *statistics = _apply(*_with_gradients(args), args)
    return output, tuple(statistics), support


def _register(name: str, function: type[OperatorFunction]) -> None:
    """Registers the dispatcher's kernel that differentiates an operator."""
    of_level = functorch.at_one_level(function)

    def differentiated(*args: Any) -> Any:
        if torch._C._are_functorch_transforms_active():
            return functorch.differentiated(function, of_level, args)
        with_gradients = torch.is_grad_enabled() and torch._C._any_requires_grad(*args)
        # Compilers trace dual numbers outside of their level.
        if with_gradients or forward_ad._current_level >= 0 or torch.compiler.is_compiling():
            return function.of(*args)
        return function.compute(*args)

    KERNELS.impl(name, differentiated, "Autograd")


for _name, _function in (
    ("attention", _Attention), ("attention_backward", Backward), ("attention_tangent", Tangent),
    ("attention_second_tangent", SecondTangent), ("attention_second_order", SecondOrder),
):  # fmt: skip
    _register(_name, _function)
