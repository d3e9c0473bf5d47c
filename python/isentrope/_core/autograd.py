"""Gradients of the operators. One backward pass, `_six_gradients`, is reached in two ways:

- `Differentiable`: eager calls, torch.func and forward mode. For a few rows register_autograd would take four times as
  long, and torch.func would ignore it and compute without gradients;
- `register_autograd`: models that torch compiles or exports, whose graphs contain the operator and no Python class, and
  direct calls of the operator.

Unobserved calls of q, k, v, a rule and a causal mask use neither: `plain.py` has a faster path.
"""

from __future__ import annotations

from itertools import chain, repeat
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from isentrope._core.call import SHARED, TENSORS, Call
from isentrope._core.library import BITS, CHECKED, LSE, OPS, SUPPORT, checked
from isentrope._core.vmap import call_batched, names_of
from isentrope.statistics import with_needs

FORWARD_MODE = "[attention] forward-mode derivatives are not implemented; use reverse mode"
# Differentiable arguments; the last three gradients are computed on request.
_DIFFERENTIABLE_AT = [Call._fields.index(name) for name in ("q", "k", "v", "bias", "lambda_", "sinks")]
_with_gradients = itemgetter(*_DIFFERENTIABLE_AT)


def _save(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:TENSORS], output[0], output[1])
    ctx.numbers = inputs[TENSORS:]


def _gradients(ctx: Any, d_output: Tensor | None, d_statistics: Tensor | None, _: Any) -> tuple:
    """Returns the gradients of every argument of the schema."""
    gradients: list[Tensor | None] = [None] * (SHARED + 1)
    wants = [ctx.needs_input_grad[index] for index in _DIFFERENTIABLE_AT[3:]]
    for index, gradient in zip(_DIFFERENTIABLE_AT, _six_gradients(ctx, d_output, d_statistics, wants)):
        gradients[index] = gradient
    return tuple(gradients)


def _needed_statistics(wanted: int, statistics: Tensor, gradients: tuple[Tensor | None, ...]) -> tuple[int, Tensor, Tensor | None]:
    """Reduces bits, saved statistics and upstream gradients to those that the backward pass needs. A backward kernel
    that expects the gradient of a statistic would compute with it even if it is 0.

    gradients: one for each slice of `statistics`; None if nothing depends on it.
    """
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


def _six_gradients(ctx: Any, d_output: Tensor | None, d_statistics: Tensor | tuple[Tensor | None, ...] | None, wants: Any) -> tuple:
    """Returns the gradients of q, k, v, and on request of bias, lambda and sinks.

    d_statistics: of the tensor of all statistics, or of each of them."""
    wanted = ctx.numbers[-1]
    if d_output is None and d_statistics is None:
        return (None,) * 6
    if not wanted & LSE:
        raise ValueError(
            "[attention] backward needs a forward pass that was run, compiled or exported with gradients enabled; "
            "got one without"
        )
    *tensors, output, statistics = ctx.saved_tensors
    if type(d_statistics) is tuple:
        wanted, statistics, d_statistics = _needed_statistics(wanted, statistics, d_statistics)
    elif d_statistics is not None:
        d_statistics = d_statistics.contiguous()
    arguments = (*tensors, *ctx.numbers[:-1], wanted, output, statistics, d_output, d_statistics, *wants, False)
    gradients = backward_operator()(*arguments)
    return gradients if all(wants) else (*gradients[:3], *(x if want else None for x, want in zip(gradients[3:], wants)))


def backward_operator() -> Any:
    """Returns the backward operator for torch's current state."""
    if torch._C._are_functorch_transforms_active():
        return _TransformableBackward.apply
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return CHECKED.attention_backward
    return _attention_backward


def below_autograd(operator: Any) -> Any:
    """Returns the operator bypassing its Python registrations, for calls that need no autograd. This saves a third of
    the time of a call on one query. The dispatcher still handles lazy negation, modes, traces and profilers."""
    # The C++ handle, private to torch, saves a Python call.
    return checked(getattr(operator, "_op", operator), torch._C._AutoDispatchBelowAutograd)


_attention = below_autograd(OPS.attention.default)
_attention_backward = below_autograd(OPS.attention_backward.default)


def requires_gradients(call: Call) -> bool:
    # Passing all arguments, most of which are no tensors, takes a microsecond more.
    return torch._C._any_requires_grad(*_with_gradients(call))


def no_second_order(ctx: Any, *_: Any) -> tuple:
    raise NotImplementedError("[attention] double backward is not implemented; got create_graph=True")


torch.library.register_autograd("isentrope::attention", _gradients, setup_context=_save)
torch.library.register_autograd("isentrope::attention_backward", no_second_order)


class _Transformable(torch.autograd.Function):
    """Raises an error in torch.func and forward mode, where a derivative would silently be zero."""

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> None:
        raise NotImplementedError(FORWARD_MODE)


class Differentiable(_Transformable):
    """Attention as an autograd function of its differentiable arguments and, as one argument, all others. Each argument
    costs a call of 16 rows 0.3 % of its time. Every statistic is a result of its own, to know unneeded gradients."""

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, ...]:
        output, statistics, support = _attention(*args[-1])
        return output, statistics, support, *statistics.unbind(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
        _save(ctx, inputs[-1], output[:3])
        ctx.mark_non_differentiable(*output[1:3])

    @staticmethod
    def backward(ctx: Any, d_output: Tensor | None, _: Any, __: Any, *d_statistics: Tensor | None) -> tuple:
        if d_output is None and all(gradient is None for gradient in d_statistics):
            return (None,) * 7
        return *_six_gradients(ctx, d_output, d_statistics, ctx.needs_input_grad[3:6]), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any) -> tuple:
        results = chain(("output", "statistics"), repeat("support"))
        apply = lambda *arguments: Differentiable.apply(*_with_gradients(arguments), arguments)  # noqa: E731
        return call_batched(apply, (*Call._fields, "wanted"), results, info.batch_size, in_dims[-1], args[-1])


# Skips the checks for torch.func in Function.apply, which is not active here.
_apply = super(torch.autograd.Function, Differentiable).apply


def differentiable(*args: Any) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
    """Returns the output, each of the float statistics, and the support."""
    apply = Differentiable.apply if torch._C._are_functorch_transforms_active() else _apply
    output, _, support, *statistics = apply(*_with_gradients(args), args)
    return output, tuple(statistics), support


class _TransformableBackward(_Transformable):
    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, ...]:
        return CHECKED.attention_backward(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
        pass

    backward = staticmethod(no_second_order)

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any) -> tuple:
        apply, (names, results) = _TransformableBackward.apply, names_of(OPS.attention_backward.default)
        return call_batched(apply, names, results, info.batch_size, in_dims, args)
