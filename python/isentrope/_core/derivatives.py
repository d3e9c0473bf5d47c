"""Gradients, tangents and second-order derivatives of a call, each a differentiable function.

A call is linearized at a point: its arguments and results. There the backward pass is linear in the upstream gradients g,
and the tangent pass is linear in the tangents t. Each is the transpose of the other, and the second-order pass is the
derivative of both with respect to the arguments:

    function         derivative in g or t               derivative in the arguments
    backward(g)      tangent(t = upstream gradients)    second_order(t = upstream gradients, g)
    tangent(t)       backward(g = upstream gradients)   second_order(t, g = upstream gradients)

Forward over forward mode alone needs more: the derivative of tangent(t) along u, `SecondTangent`.
"""

from __future__ import annotations

import warnings
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor
from torch._functorch.utils import unwrap_dead_wrappers
from torch.autograd import forward_ad

from isentrope._core import functorch
from isentrope._core.call import SHARED, Call
from isentrope._core.library import CHECKED, OPS, below_autograd

THIRD_ORDER = "[attention] derivatives must be of first or second order; got third order, which is not implemented"
FORWARD_OVER_FORWARD = (
    "[attention] forward over forward mode is computed by the reference, in float64 and on one thread: torch.func.hessian, and jvp or "
    "jacfwd of grad, vjp or jacrev, use the kernels"
)
# Differentiable arguments; the gradients of the last three are computed on request.
DIFFERENTIABLE_AT = [Call._fields.index(name) for name in ("q", "k", "v", "bias", "lambda_", "sinks")]
_SIX = len(DIFFERENTIABLE_AT)
# The arguments of a call, the bits of its statistics, its output and its statistics.
_POINT = SHARED + 3
_TANGENTS_AT = range(_POINT, _POINT + _SIX)
_SECOND_TANGENTS_AT = range(_POINT + _SIX, _POINT + 2 * _SIX)
Six = tuple[Tensor | None, ...]
"""One for each differentiable argument."""

_attention_backward = below_autograd(OPS.attention_backward.default)


def transformed() -> bool:
    """Returns whether torch.func or forward-mode differentiation is active."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def backward_operator() -> Any:
    """Returns the backward operator for torch's current state."""
    if transformed():
        return Backward.of
    if torch.compiler.is_compiling():
        return CHECKED.attention_backward
    return Backward.of if torch.is_grad_enabled() else _attention_backward


def tangents_of(point: Any, tangents: Six) -> tuple[Tensor | None, Tensor | None]:
    """Returns the tangents of the output and of all statistics; None if all of the arguments' are."""
    return Tangent.of(*point, *tangents) if _any(tangents) else (None, None)


def _gradients_of(point: Any, d_output: Tensor | None, d_statistics: Tensor | None, wants: Any) -> tuple:
    gradients = backward_operator()(*point, d_output, _contiguous(d_statistics), *wants, False)
    return _requested(gradients, wants)


def _second_order_of(point: Any, tangents: Six, results: tuple, upstream: tuple, wants: Any) -> tuple:
    """results: the tangents of output and statistics. upstream: their gradients."""
    (t_output, t_statistics), (d_output, d_statistics) = results, upstream
    arguments = (*point, *tangents, t_output, _contiguous(t_statistics), d_output, _contiguous(d_statistics))
    return _requested(SecondOrder.of(*arguments, *wants), wants)


def _requested(gradients: tuple, wants: Any) -> tuple:
    return *gradients[:3], *_only(gradients[3:], wants)


def _only(gradients: tuple, needs: Any) -> tuple:
    return tuple(x if need else None for x, need in zip(gradients, needs))


def _contiguous(statistics: Tensor | None) -> Tensor | None:
    return None if statistics is None else statistics.contiguous()


def _any(tensors: tuple) -> bool:
    return any(x is not None for x in tensors)


def _sum(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b


class OperatorFunction(torch.autograd.Function):
    """An operator as a function of its differentiable arguments and, as one argument, of all of them."""

    operator: Any
    compute: Any  # the operator below autograd
    picked: Any  # returns the differentiable arguments

    @classmethod
    def of(cls, *args: Any) -> Any:
        if torch._C._are_functorch_transforms_active():
            # Within a kernel the next level of torch.func differentiates it.
            return (cls.compute if functorch.is_dispatching() else cls.operator)(*args)
        args = unwrap_dead_wrappers(args)
        return cls.apply(*cls.picked(args), args)

    @classmethod
    def forward(cls, *args: Any) -> Any:
        return cls.compute(*args[-1])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(x for x in output if x.shape == (0,)))  # not requested
        args = inputs[-1]
        tensors = (*(x for x in args if isinstance(x, Tensor)), *output)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.others = tuple(Tensor if isinstance(x, Tensor) else x for x in args)
        ctx.tensors = tuple(isinstance(x, Tensor) for x in inputs)


def saved(ctx: Any) -> tuple[tuple, tuple]:
    """Returns the arguments and the results."""
    tensors = iter(ctx.saved_tensors)
    return tuple(next(tensors) if x is Tensor else x for x in ctx.others), tuple(tensors)


def _requested_by_engine(ctx: Any) -> list[bool]:
    """Returns which inputs the running backward pass needs gradients of: some of those that require them."""

    def requested(node: Any) -> bool:
        try:
            return node is not None and torch._C._will_engine_execute_node(node)
        except RuntimeError:  # an input of torch.autograd.grad
            return True

    nodes = iter(ctx.next_functions)  # of tensors
    return [is_tensor and requested(next(nodes)[0]) and need for is_tensor, need in zip(ctx.tensors, ctx.needs_input_grad)]


class Backward(OperatorFunction):
    compute = staticmethod(_attention_backward)
    operator = OPS.attention_backward.default
    picked = itemgetter(*DIFFERENTIABLE_AT, _POINT, _POINT + 1)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple:
        if not _any(upstream):
            return (None,) * (_SIX + 3)
        (*point, d_output, d_statistics, _, _, _, _), _ = saved(ctx)
        upstream = tuple(x if x is None or at >= 3 else x.to(point[at].dtype) for at, x in enumerate(upstream))
        results = tangents_of(point, upstream)
        gradients: tuple = (None,) * _SIX
        needs = _requested_by_engine(ctx)
        if any(needs[:_SIX]):
            gradients = _second_order_of(point, upstream, results, (d_output, d_statistics), needs[3:_SIX])
        return *_only((*gradients, *results), needs), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> tuple:
        (*point, d_output, d_statistics, w_bias, w_lambda, w_sinks, _), _ = saved(ctx)
        wants = (w_bias, w_lambda, w_sinks)
        total: tuple = (None,) * _SIX
        if _any(upstream := tangents[_SIX : _SIX + 2]):
            total = _gradients_of(point, upstream[0], upstream[1], wants)
        if _any(of_call := tangents[:_SIX]):
            results = tangents_of(point, of_call)
            total = tuple(map(_sum, total, _second_order_of(point, of_call, results, (d_output, d_statistics), wants)))
        return total


class Tangent(OperatorFunction):
    compute = staticmethod(below_autograd(OPS.attention_tangent.default))
    picked = itemgetter(*DIFFERENTIABLE_AT, *_TANGENTS_AT)
    operator = OPS.attention_tangent.default

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple:
        if not _any(upstream):
            return (None,) * (2 * _SIX + 1)
        args, results = saved(ctx)
        point, tangents = args[:_POINT], args[_POINT:]
        needs = _requested_by_engine(ctx)
        of_call: tuple = (None,) * _SIX
        if any(needs[:_SIX]):
            of_call = _second_order_of(point, tangents, results, upstream, needs[3:_SIX])
        of_tangents: tuple = (None,) * _SIX
        if any(needs[_SIX:]):
            of_tangents = _gradients_of(point, upstream[0], upstream[1], needs[_SIX + 3 : 2 * _SIX])
        return *_only((*of_call, *of_tangents), needs), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> tuple:
        args, _ = saved(ctx)
        total = tangents_of(args[:_POINT], tangents[_SIX : 2 * _SIX])
        if _any(of_call := tangents[:_SIX]):
            total = tuple(map(_sum, total, SecondTangent.of(*args, *of_call)))
        return total


class SecondTangent(OperatorFunction):
    """The second derivative along two tangents t and u, linear in each. No kernel computes it."""

    operator = OPS.attention_second_tangent.default
    picked = itemgetter(*DIFFERENTIABLE_AT, *_TANGENTS_AT, *_SECOND_TANGENTS_AT)
    _below_autograd = staticmethod(below_autograd(OPS.attention_second_tangent.default))

    @classmethod
    def compute(cls, *args: Any) -> tuple:
        warnings.warn(FORWARD_OVER_FORWARD, stacklevel=2)
        wide = (x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for x in args)
        return tuple(x.to(like.dtype) for x, like in zip(cls._below_autograd(*wide), args[_POINT - 2 : _POINT]))

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple:
        if not _any(upstream):
            return (None,) * (3 * _SIX + 1)
        needs = _requested_by_engine(ctx)
        if any(needs[:_SIX]):
            raise NotImplementedError(THIRD_ORDER)
        args, _ = saved(ctx)
        point, t, u = args[:_POINT], args[_POINT:-_SIX], args[-_SIX:]
        gradients: tuple = ()
        for along, need in ((u, needs[_SIX : 2 * _SIX]), (t, needs[2 * _SIX : -1])):
            results = tangents_of(point, along)
            gradients += _second_order_of(point, along, results, upstream, need[3:]) if any(need) else (None,) * _SIX
        return *_only((None,) * _SIX + gradients, needs), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> tuple:
        if _any(tangents[:_SIX]):
            raise NotImplementedError(THIRD_ORDER)
        args, _ = saved(ctx)
        point, t, u = args[:_POINT], args[_POINT:-_SIX], args[-_SIX:]
        total: tuple = (None, None)
        for pair in ((tangents[_SIX : 2 * _SIX], u), (t, tangents[2 * _SIX : -1])):
            if all(map(_any, pair)):
                total = tuple(map(_sum, total, SecondTangent.of(*point, *pair[0], *pair[1])))
        return total


class SecondOrder(OperatorFunction):
    """Linear in the tangents t and in the upstream gradients g. For constant g it is a Hessian times t, so in t it is its own
    transpose."""

    compute = staticmethod(below_autograd(OPS.attention_second_order.default))
    picked = itemgetter(*[*DIFFERENTIABLE_AT, *_TANGENTS_AT, _POINT + _SIX + 2, _POINT + _SIX + 3])
    operator = OPS.attention_second_order.default

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple:
        if not _any(upstream):
            return (None,) * (2 * _SIX + 3)
        needs = _requested_by_engine(ctx)
        if any(needs[:_SIX]):
            raise NotImplementedError(THIRD_ORDER)
        args, _ = saved(ctx)
        point, d_output, d_statistics = args[:_POINT], *args[-5:-3]
        gradients: tuple = (None,) * _SIX
        if any(needs[_SIX : 2 * _SIX]):
            results = tangents_of(point, upstream)
            gradients = _second_order_of(point, upstream, results, (d_output, d_statistics), needs[_SIX + 3 : 2 * _SIX])
        of_upstream: tuple = (None, None)
        if any(needs[2 * _SIX : -1]):
            of_upstream = SecondTangent.of(*args[: _POINT + _SIX], *upstream)
        return *_only((None,) * _SIX + gradients + of_upstream, needs), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> tuple:
        if _any(tangents[:_SIX]):
            raise NotImplementedError(THIRD_ORDER)
        args, _ = saved(ctx)
        point, (t_output, t_statistics, *upstream), wants = args[:_POINT], args[_POINT + _SIX : -3], args[-3:]
        total: tuple = (None,) * _SIX
        if _any(of_tangents := tangents[_SIX : 2 * _SIX]):
            total = _second_order_of(point, of_tangents, tangents_of(point, of_tangents), tuple(upstream), wants)
        if _any(of_upstream := tangents[2 * _SIX : -1]):
            results = (t_output, t_statistics)
            total = tuple(map(_sum, total, _second_order_of(point, args[_POINT : _POINT + _SIX], results, of_upstream, wants)))
        return total
