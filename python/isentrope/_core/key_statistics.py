"""Gradients of the weights that keys receive.

received_j = sum_i w_i p_ij is linear in p, so its gradient is that of attention whose values are one column, the
upstream gradient of received, and whose upstream gradient is w. The attention's output is the gradient of w.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isentrope._core.attend import transformed
from isentrope._core.autograd import FORWARD_MODE, _Transformable, backward_operator, differentiable
from isentrope._core.call import SHARED, Call
from isentrope._core.library import CHECKED, LSE, OPS

_Q, _K, _BIAS, _SINKS = (Call._fields.index(name) for name in ("q", "k", "bias", "sinks"))
_WEIGHTS = SHARED + 1  # place of the row weights in the operator's arguments, after lse


def received(call: Call, lse: Tensor, weights: Tensor | None) -> Tensor:
    """Calls the operator on the path that torch's current state requires."""
    arguments = (*call, lse, weights)
    if torch.compiler.is_compiling():
        return OPS.received.default(*arguments)
    tensors = (call.q, call.k, call.bias, call.sinks, weights)
    if transformed() or torch.is_grad_enabled() and torch._C._any_requires_grad(*(x for x in tensors if x is not None)):
        return _Received.apply(*tensors, arguments)
    return CHECKED.received(*arguments)


def _gradients(call: Call, weights: Tensor | None, upstream: Tensor, wants: tuple[bool, bool]) -> tuple[Any, ...]:
    """Returns the gradients of q, k, weights, and on request of bias and sinks.

    Computed in float32 because `upstream` is: as values of 16 bits it would be rounded, or overflow."""
    q, k = call.q, call.k
    dtype = upstream.dtype
    group = q.shape[1] // max(k.shape[1], 1)
    # Query heads of a group have upstream gradients of their own, so their keys are repeated.
    column = upstream.unsqueeze(-1).contiguous()
    inner = call._replace(q=q.to(dtype), k=k.to(dtype).repeat_interleave(group, 1), v=column)
    if torch._C._are_functorch_transforms_active():
        output, (lse,), _ = differentiable(*inner, LSE)
    else:
        output, (lse,), _ = CHECKED.attention(*inner, LSE)
    w = torch.ones_like(output) if weights is None else weights.unsqueeze(-1)
    dq, dk, _, d_bias, _, d_sinks = backward_operator()(
        *inner, LSE, output, lse.unsqueeze(0), w, None, wants[0], False, wants[1], True
    )
    dk = dk.unflatten(1, (k.shape[1], group)).sum(2)
    d_weights = None if weights is None else output.squeeze(-1)
    return dq.to(q.dtype), dk.to(k.dtype), d_weights, d_bias if wants[0] else None, d_sinks if wants[1] else None


class _Received(_Transformable):
    """The operator as an autograd function of q, k, bias, sinks, weights and, as one argument, all others."""

    @staticmethod
    def forward(*args: Any) -> Tensor:
        return CHECKED.received(*args[-1])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        call, (_, weights) = Call(*inputs[-1][:SHARED]), inputs[-1][SHARED:]
        ctx.save_for_backward(weights, *(x for x in call if isinstance(x, Tensor)))
        ctx.call = call._replace(**{name: None for name, x in call._asdict().items() if isinstance(x, Tensor)})
        ctx.names = [name for name, x in call._asdict().items() if isinstance(x, Tensor)]

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple:
        weights, *tensors = ctx.saved_tensors
        call = ctx.call._replace(**dict(zip(ctx.names, tensors)))
        dq, dk, d_weights, d_bias, d_sinks = _gradients(call, weights, upstream, (ctx.needs_input_grad[2], ctx.needs_input_grad[3]))
        return dq, dk, d_bias, d_sinks, d_weights, None

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> None:
        raise NotImplementedError(FORWARD_MODE.replace("[attention]", "[received]"))


def _save(ctx: Any, inputs: tuple, output: Tensor) -> None:
    _Received.setup_context(ctx, (inputs,), output)


def _gradients_of_operator(ctx: Any, upstream: Tensor) -> tuple:
    """Returns the gradients of every argument of the schema."""
    weights, *tensors = ctx.saved_tensors
    call = ctx.call._replace(**dict(zip(ctx.names, tensors)))
    gradients: list[Tensor | None] = [None] * (SHARED + 2)
    wants = (ctx.needs_input_grad[_BIAS], ctx.needs_input_grad[_SINKS])
    places = (_Q, _K, _WEIGHTS, _BIAS, _SINKS)
    for place, gradient in zip(places, _gradients(call, weights, upstream, wants)):
        gradients[place] = gradient
    return tuple(gradients)


torch.library.register_autograd("isentrope::received", _gradients_of_operator, setup_context=_save)
