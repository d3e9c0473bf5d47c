"""Gradients of statistics of keys.

received_j = sum_i w_i p_ij is linear in p. Its gradient is that of attention whose values are one column, the upstream
gradient of received, and whose own upstream gradient is w. The attention's output is the gradient of w.

A weight at a chosen key is e^(z - lse). The gradient through z is a few products with keys, that through lse is
attention's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isentrope._core.autograd import differentiable
from isentrope._core.call import SHARED, Call
from isentrope._core.derivatives import OperatorFunction, backward_operator, saved, transformed
from isentrope._core.library import CHECKED, LSE, OPS
from isentrope._core.vmap import call_batched, names_of

_DIFFERENTIABLE = ("q", "k", "bias", "sinks")
_PLACES = [Call._fields.index(name) for name in _DIFFERENTIABLE]
_WEIGHTS = SHARED + 1  # place of the row weights in the operator's arguments, after lse


def received(call: Call, lse: Tensor, weights: Tensor | None) -> Tensor:
    """Calls the operator on the path that torch's current state requires."""
    return _call(_Received, OPS.received.default, call, (lse, weights), weights)


def weights_at(call: Call, lse: Tensor, keys: Tensor) -> Tensor:
    return _call(_WeightsAt, OPS.weights_at.default, call, (lse, keys), None)[0]


def _call(function: Any, operator: Any, call: Call, more: tuple, weights: Tensor | None) -> Any:
    if torch.compiler.is_compiling():
        return operator(*call, *more)
    tensors = (*(call[place] for place in _PLACES), weights)
    if transformed() or torch.is_grad_enabled() and torch._C._any_requires_grad(*(x for x in tensors if x is not None)):
        return function.apply(*tensors, (*call, *more))
    return function.compute(*call, *more)


def _in_float32(call: Call, dtype: torch.dtype, values: Tensor) -> Call:
    """Returns the call with values for each query head. Heads of a group have values of their own, so their keys are
    repeated. In float32, because values of 16 bits would be rounded, or overflow."""
    keys = call.k.to(dtype).repeat_interleave(_group_of(call), 1)
    return call._replace(q=call.q.to(dtype), k=keys, v=values.contiguous())


def _group_of(call: Call) -> int:
    return call.q.shape[1] // max(call.k.shape[1], 1)


def _forward(call: Call) -> tuple[Tensor, Tensor]:
    """Returns output and lse, on a path that torch.func may differentiate."""
    if torch._C._are_functorch_transforms_active():
        output, (lse,), _ = differentiable(*call, LSE)
    else:
        output, (lse,), _ = CHECKED.attention(*call, LSE)
    return output, lse.unsqueeze(0)


def _backward(call: Call, inner: Call, results: tuple, d_output: Tensor | None, d_lse: Tensor | None, wants: Any) -> list:
    """Returns the gradients of q, k, bias and sinks in float32; keys' summed over their group."""
    dq, dk, _, d_bias, _, d_sinks = backward_operator()(
        *inner, LSE, *results, d_output, d_lse, wants[0], False, wants[1], True
    )
    dk = dk.unflatten(1, (call.k.shape[1], _group_of(call))).sum(2)
    return [dq, dk, d_bias if wants[0] else None, d_sinks if wants[1] else None]


def _gradients_of_received(call: Call, more: tuple, upstream: Tensor, wants: Any) -> tuple:
    """Returns the gradients of q, k, bias, sinks and weights."""
    weights = more[1]
    inner = _in_float32(call, upstream.dtype, upstream.unsqueeze(-1))
    output, lse = _forward(inner)
    w = torch.ones_like(output) if weights is None else weights.unsqueeze(-1)
    gradients = _backward(call, inner, (output, lse), w, None, wants)
    return *gradients, None if weights is None else output.squeeze(-1)


def _gradients_of_weights_at(call: Call, more: tuple, upstream: Tensor, wants: Any) -> tuple:
    _, keys, weights, by_score, by_bias = more
    of_logits = upstream * weights
    d_lse = -of_logits.sum(-1)
    inner = _in_float32(call, upstream.dtype, upstream.new_zeros((*call.q.shape[:2], call.k.shape[2], 1)))
    sinks, inner = inner.sinks, inner._replace(sinks=None)
    output, lse = _forward(inner)
    d_sinks = None
    if sinks is not None:  # weights are e^(z - lse) times the share that the sink leaves
        taken = (sinks[:, None] - lse[0]).sigmoid().masked_fill(lse[0] == -torch.inf, 0)  # no gradient without keys
        d_sinks, d_lse = (d_lse * taken).sum((0, 2)), d_lse * (1 - taken)
    dq, dk, d_bias, _ = _backward(call, inner, (output, lse), None, d_lse.unsqueeze(0), (wants[0], False))
    if call.k.shape[2] == 0:
        return dq, dk, d_bias, d_sinks if wants[1] else None, None
    # Keys that a row does not see have weight 0, and may have any number, also one that is none.
    at, hidden = keys.clamp(0, call.k.shape[2] - 1), (by_score == 0).unsqueeze(-1)
    head = torch.arange(call.q.shape[1], device=at.device)[:, None, None] // max(_group_of(call), 1)
    batch = torch.arange(call.q.shape[0], device=at.device)[:, None, None, None]
    if call.soft_cap > 0 or call.compiled_soft_cap is not None:
        by_score = _FirstOrder.apply(by_score, call.q, call.k)
    of_scores = (of_logits * by_score).unsqueeze(-1)
    dq = dq + (of_scores * call.k[batch, head, at].to(dq.dtype).masked_fill(hidden, 0)).sum(3)
    dk = dk.index_put((batch, head, at), of_scores * inner.q.unsqueeze(3).masked_fill(hidden, 0), accumulate=True)
    if d_bias is not None:
        d_bias = d_bias.scatter_add(3, at, of_logits * by_bias)
    return dq, dk, d_bias, d_sinks if wants[1] else None, None


class _FirstOrder(torch.autograd.Function):
    """Returns slopes of the soft-cap, which depend on q and k. Their derivatives are an error, and would be 0 without it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(slopes: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return slopes.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple:
        raise NotImplementedError("[weights_at] second derivatives with a soft_cap are not implemented")


class _KeyStatistic(OperatorFunction):
    """An operator as an autograd function of q, k, bias, sinks, weights and, as one argument, all others."""

    gradients: Any

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        results = _KeyStatistic.save(ctx, inputs, output)
        ctx.mark_non_differentiable(*results[1:])

    @staticmethod
    def save(ctx: Any, inputs: tuple, output: Any) -> tuple:
        """Keeps what the gradients need, and returns the results that are among it."""
        results = output if isinstance(output, tuple) else ()
        OperatorFunction.setup_context(ctx, inputs, results)
        ctx.set_materialize_grads(True)
        return results

    @classmethod
    def backward(cls, ctx: Any, upstream: Tensor, *_: Any) -> tuple:
        return *cls.gradients_of(ctx, upstream, ctx.needs_input_grad[2:4]), None

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> None:
        raise NotImplementedError("[attention] forward-mode derivatives of statistics of keys are not implemented; use reverse mode")

    @classmethod
    def gradients_of(cls, ctx: Any, upstream: Tensor, wants: tuple) -> tuple:
        arguments, results = saved(ctx)
        call = Call(*arguments[:SHARED])
        dq, dk, *rest = cls.gradients(call, (*arguments[SHARED:], *results), upstream, wants)
        return dq.to(call.q.dtype), dk.to(call.k.dtype), *rest

    @classmethod
    def apply_all(cls, *arguments: Any) -> Any:
        """Computes the operator of these arguments."""
        weights = arguments[_WEIGHTS] if cls is _Received else None
        return cls.apply(*(arguments[place] for place in _PLACES), weights, arguments)

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple, *args: Any) -> tuple:
        return call_batched(cls.apply_all, *names_of(cls.operator), info.batch_size, in_dims[-1], args[-1])


class _Received(_KeyStatistic):
    operator = OPS.received.default
    compute = staticmethod(CHECKED.received)
    gradients = staticmethod(_gradients_of_received)


class _WeightsAt(_KeyStatistic):
    operator = OPS.weights_at.default
    compute = staticmethod(CHECKED.weights_at)
    gradients = staticmethod(_gradients_of_weights_at)


def _register(name: str, function: Any) -> None:
    """Registers the gradients for compiled and exported models, whose graphs contain the operator."""

    def setup(ctx: Any, inputs: tuple, output: Any) -> None:
        _KeyStatistic.save(ctx, (inputs,), output)

    def backward(ctx: Any, upstream: Tensor, *_: Any) -> tuple:
        gradients: list[Tensor | None] = [None] * (SHARED + 2)
        wants = tuple(ctx.needs_input_grad[place] for place in _PLACES[2:])
        for place, gradient in zip((*_PLACES, _WEIGHTS), function.gradients_of(ctx, upstream, wants)):
            gradients[place] = gradient
        return tuple(gradients)

    torch.library.register_autograd(f"isentrope::{name}", backward, setup_context=setup)


_register("received", _Received)
_register("weights_at", _WeightsAt)
