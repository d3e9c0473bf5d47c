"""Gradients of the operators. One backward pass, `_six_gradients`, and two ways to it:

- `Differentiable`: eager calls, which register_autograd would take four times as long for a few rows, torch.func and
  forward mode, which do not see through it and would compute without it;
- `register_autograd`: models that torch compiles or exports, whose graphs have the operator and no class of Python, and
  whoever calls the operator itself.

A call of q, k, v, a rule and a causal mask that nobody watches takes none of them: `plain.py` has a shorter one.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from isentrope._core.call import SHARED, TENSORS, Call
from isentrope._core.library import CHECKED, LSE, OPS, checked
from isentrope._core.vmap import one_by_one

FORWARD_MODE = "[attention] forward-mode derivatives are not implemented; use reverse mode"
# Those with gradients; the last three are computed where somebody wants them.
_DIFFERENTIABLE_AT = [Call._fields.index(name) for name in ("q", "k", "v", "bias", "lambda_", "sinks")]
_with_gradients = itemgetter(*_DIFFERENTIABLE_AT)


def _save(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:TENSORS], output[0], output[1])
    ctx.numbers = inputs[TENSORS:]


def _gradients(ctx: Any, d_output: Tensor | None, d_statistics: Tensor | None, _: Any) -> tuple:
    """Of every argument of the schema."""
    found: list[Tensor | None] = [None] * (SHARED + 1)
    wants = [ctx.needs_input_grad[at] for at in _DIFFERENTIABLE_AT[3:]]
    for at, gradient in zip(_DIFFERENTIABLE_AT, _six_gradients(ctx, d_output, d_statistics, wants)):
        found[at] = gradient
    return tuple(found)


def _six_gradients(ctx: Any, d_output: Tensor | None, d_statistics: Tensor | None, wants: Any) -> tuple:
    """Of q, k, v, and of bias, lambda and sinks where they are wanted."""
    if d_output is None and d_statistics is None:
        return (None,) * 6
    if not ctx.numbers[-1] & LSE:
        raise ValueError(
            "[attention] backward needs a forward pass that was run, compiled or exported with gradients enabled; "
            "got one without"
        )
    *tensors, output, statistics = ctx.saved_tensors
    if d_statistics is not None:
        d_statistics = d_statistics.contiguous()
    arguments = (*tensors, *ctx.numbers, output, statistics, d_output, d_statistics, *wants, False)
    found = backward_operator()(*arguments)
    return found if all(wants) else (*found[:3], *(x if want else None for x, want in zip(found[3:], wants)))


def backward_operator() -> Any:
    """On the way that the state of torch asks for."""
    if torch._C._are_functorch_transforms_active():
        return _TransformableBackward.apply
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return CHECKED.attention_backward
    return _attention_backward


def below_autograd(operator: Any) -> Any:
    """The operator where autograd has nothing to do, past what Python registers for it: a third of the time of a
    call on one query. The dispatcher stays: it knows of lazy negation, of modes, traces and profilers."""
    # The handle in C++, past a call in Python. It is private to torch.
    return checked(getattr(operator, "_op", operator), torch._C._AutoDispatchBelowAutograd)


_attention = below_autograd(OPS.attention.default)
_attention_backward = below_autograd(OPS.attention_backward.default)


def requires_gradients(call: Call) -> bool:
    # All arguments, of which most are no tensors, take a microsecond more.
    return torch._C._any_requires_grad(*_with_gradients(call))


def no_second_order(ctx: Any, *_: Any) -> tuple:
    raise NotImplementedError("[attention] double backward is not implemented; got create_graph=True")


torch.library.register_autograd("isentrope::attention", _gradients, setup_context=_save)
torch.library.register_autograd("isentrope::attention_backward", no_second_order)


class _Transformable(torch.autograd.Function):
    """An operator for torch.func and forward mode, where a derivative would silently be zero: here it is an error."""

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple, *args: Any) -> tuple:
        return one_by_one(cls.apply)(info, in_dims, *args)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> None:
        raise NotImplementedError(FORWARD_MODE)


class Differentiable(_Transformable):
    """Attention of the arguments that have gradients and, as one argument, of all: each costs a call of 16 rows 0.3 %
    of its time."""

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
        return _attention(*args[-1])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
        _save(ctx, inputs[-1], output)

    @staticmethod
    def backward(ctx: Any, d_output: Tensor | None, d_statistics: Tensor | None, _: Any) -> tuple:
        return *_six_gradients(ctx, d_output, d_statistics, ctx.needs_input_grad[3:6]), None


# Past what Function.apply does for torch.func in Python, where that is not at work.
_apply = super(torch.autograd.Function, Differentiable).apply


def differentiable(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    apply = Differentiable.apply if torch._C._are_functorch_transforms_active() else _apply
    return apply(*_with_gradients(args), args)


class _TransformableBackward(_Transformable):
    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, ...]:
        return CHECKED.attention_backward(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
        pass

    backward = staticmethod(no_second_order)
