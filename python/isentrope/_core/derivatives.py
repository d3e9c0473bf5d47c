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
from collections.abc import Iterable, Iterator
from itertools import chain, islice
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
_NONE = (None,) * _SIX
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


def _gradients_of(point: Any, d_output: Tensor | None, d_statistics: Tensor | None, needs: Any) -> tuple:
    """Returns the gradients of the six arguments, of the last three those that are needed."""
    return _requested(backward_operator()(*point, d_output, _contiguous(d_statistics), *needs[3:], False), needs)


def _second_order_of(point: Any, tangents: Any, upstream: Any, needs: Any, results: Any = None) -> tuple:
    """Returns gradients of the six arguments. upstream: those of output and statistics, whose tangents are the results."""
    if not any(needs):
        return _NONE
    t_output, t_statistics = results or tangents_of(point, tangents)
    d_output, d_statistics = upstream
    arguments = (*point, *tangents, t_output, _contiguous(t_statistics), d_output, _contiguous(d_statistics))
    return _requested(SecondOrder.of(*arguments, *needs[3:]), needs)


def _requested(gradients: tuple, needs: Any) -> tuple:
    return *gradients[:3], *(x if need else None for x, need in zip(gradients[3:], needs[3:]))


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


class _Pass(OperatorFunction):
    """A pass at a point, linear in each group of arguments but the first. `rest` are its arguments after the point."""

    sizes: tuple[int, ...]
    """Number of arguments in each group; the six of the call are the first group."""
    transposed: Any
    """Yields the gradients of each group."""
    along: Any
    """Returns the derivative along tangents of one group."""

    @classmethod
    def _groups(cls, inputs: Iterable[Any]) -> list[tuple]:
        each = iter(inputs)
        groups = [tuple(islice(each, size)) for size in cls.sizes]
        if cls in (SecondTangent, SecondOrder) and any(x is not None and x is not False for x in groups[0]):
            raise NotImplementedError(THIRD_ORDER)
        return groups

    @classmethod
    def backward(cls, ctx: Any, *upstream: Tensor | None) -> tuple:
        if not _any(upstream):
            return (None,) * (sum(cls.sizes) + 1)
        args, results = saved(ctx)
        needs = cls._groups(_requested_by_engine(ctx))
        found = chain(*cls.transposed(args[:_POINT], args[_POINT:], results, upstream, needs))
        return *(x if need else None for x, need in zip(found, chain(*needs), strict=True)), None

    @classmethod
    def jvp(cls, ctx: Any, *tangents: Tensor | None) -> tuple:
        args, results = saved(ctx)
        total: tuple = (None,) * len(results)
        for group, of_group in enumerate(cls._groups(tangents)):
            if _any(of_group):
                total = tuple(map(_sum, total, cls.along(group, args[:_POINT], args[_POINT:], of_group)))
        return total


class Backward(_Pass):
    compute = staticmethod(_attention_backward)
    operator = OPS.attention_backward.default
    picked = itemgetter(*DIFFERENTIABLE_AT, _POINT, _POINT + 1)
    sizes = _SIX, 2

    @staticmethod
    def transposed(point: tuple, rest: tuple, _: Any, upstream: tuple, needs: Any) -> Iterator[tuple]:
        upstream = tuple(x if x is None or at >= 3 else x.to(point[at].dtype) for at, x in enumerate(upstream))
        results = tangents_of(point, upstream)
        yield _second_order_of(point, upstream, rest[:2], needs[0], results)
        yield results

    @staticmethod
    def along(group: int, point: tuple, rest: tuple, tangents: tuple) -> tuple:
        needs = (True, True, True, *rest[2:5])
        return _gradients_of(point, *tangents, needs) if group else _second_order_of(point, tangents, rest[:2], needs)


class Tangent(_Pass):
    compute = staticmethod(below_autograd(OPS.attention_tangent.default))
    operator = OPS.attention_tangent.default
    picked = itemgetter(*DIFFERENTIABLE_AT, *_TANGENTS_AT)
    sizes = _SIX, _SIX

    @staticmethod
    def transposed(point: tuple, tangents: tuple, results: tuple, upstream: tuple, needs: Any) -> Iterator[tuple]:
        yield _second_order_of(point, tangents, upstream, needs[0], results)
        yield _gradients_of(point, *upstream, needs[1]) if any(needs[1]) else _NONE

    @staticmethod
    def along(group: int, point: tuple, t: tuple, tangents: tuple) -> tuple:
        return tangents_of(point, tangents) if group else SecondTangent.of(*point, *t, *tangents)


class SecondTangent(_Pass):
    """The second derivative along two tangents t and u, linear in each. No kernel computes it."""

    operator = OPS.attention_second_tangent.default
    picked = itemgetter(*DIFFERENTIABLE_AT, *_TANGENTS_AT, *_SECOND_TANGENTS_AT)
    sizes = _SIX, _SIX, _SIX
    _below_autograd = staticmethod(below_autograd(OPS.attention_second_tangent.default))

    @classmethod
    def compute(cls, *args: Any) -> tuple:
        warnings.warn(FORWARD_OVER_FORWARD, stacklevel=2)
        wide = (x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for x in args)
        return tuple(x.to(like.dtype) for x, like in zip(cls._below_autograd(*wide), args[_POINT - 2 : _POINT]))

    @staticmethod
    def transposed(point: tuple, rest: tuple, _: Any, upstream: tuple, needs: Any) -> Iterator[tuple]:
        yield _NONE
        for along, need in ((rest[_SIX:], needs[1]), (rest[:_SIX], needs[2])):
            yield _second_order_of(point, along, upstream, need)

    @staticmethod
    def along(group: int, point: tuple, rest: tuple, tangents: tuple) -> tuple:
        t, u = (tangents, rest[_SIX:]) if group == 1 else (rest[:_SIX], tangents)
        return SecondTangent.of(*point, *t, *u) if _any(t) and _any(u) else (None, None)


class SecondOrder(_Pass):
    """Linear in the tangents t and in the upstream gradients g. For constant g it is a Hessian times t, so in t it is its own
    transpose."""

    compute = staticmethod(below_autograd(OPS.attention_second_order.default))
    operator = OPS.attention_second_order.default
    picked = itemgetter(*DIFFERENTIABLE_AT, *_TANGENTS_AT, _POINT + _SIX + 2, _POINT + _SIX + 3)
    sizes = _SIX, _SIX, 2

    @staticmethod
    def transposed(point: tuple, rest: tuple, _: Any, upstream: tuple, needs: Any) -> Iterator[tuple]:
        yield _NONE
        yield _second_order_of(point, upstream, rest[-5:-3], needs[1])
        yield SecondTangent.of(*point, *rest[:_SIX], *upstream) if any(needs[2]) else (None, None)

    @staticmethod
    def along(group: int, point: tuple, rest: tuple, tangents: tuple) -> tuple:
        needs = (True, True, True, *rest[-3:])
        if group == 1:
            return _second_order_of(point, tangents, rest[-5:-3], needs)
        return _second_order_of(point, rest[:_SIX], tangents, needs, rest[_SIX : _SIX + 2])
