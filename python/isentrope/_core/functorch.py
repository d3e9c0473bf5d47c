"""Differentiation of the operators by torch.func, whose levels the dispatcher visits one by one.

Autograd functions can be called under torch.func too, but it then takes all their arguments apart several times for each
level. For small calls that took longer than the attention.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import TransformType, peek_interpreter_stack
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd.forward_ad import _set_fwd_grad_enabled
from torch.autograd.function import _SingleLevelFunction

_FRONT = torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode


def is_dispatching() -> bool:
    """Returns whether a kernel runs at the top level of torch.func."""
    return torch._C._are_functorch_transforms_active() and torch._C._dispatch_tls_is_dispatch_key_excluded(_FRONT)


def at_one_level(function: Any) -> Any:
    """Returns an `OperatorFunction` differentiated by one level of torch.func, whose operator the next levels compute."""

    def forward(*args: Any) -> Any:
        with torch.enable_grad(), _set_fwd_grad_enabled(True):
            return function.compute(*args[-1])

    methods = {"forward": staticmethod(forward), "setup_context": function.setup_context, "backward": function.backward}
    return type(function.__name__, (_SingleLevelFunction,), methods)


def differentiated(function: Any, of_level: Any, args: tuple) -> Any:
    """Computes a function in its operator's kernel, differentiated by the top level of torch.func: `of_level` is it there."""
    interpreter = peek_interpreter_stack()
    if interpreter is not None and interpreter.key() == TransformType.Jvp:
        return _with_tangents(function, args)
    with enable_single_level_autograd_function():
        return of_level.apply(*function.picked(args), args)


def _with_tangents(function: Any, args: tuple) -> Any:
    """Computes the results as dual numbers of the running level."""
    primals = [torch._VF._unpack_dual(x, level=0)[0] if isinstance(x, Tensor) else x for x in args]
    tangents = [None if x is None else torch._VF._unpack_dual(x, level=0)[1] for x in function.picked(args)]
    results = function.compute(*primals)
    saved = SimpleNamespace(set_materialize_grads=_ignore, mark_non_differentiable=_ignore)
    saved.save_for_backward, saved.save_for_forward = _ignore, lambda *tensors: setattr(saved, "saved_tensors", tensors)
    function.setup_context(saved, (primals,), results)
    found = function.jvp(saved, *tangents)
    return tuple(x if t is None else torch._VF._make_dual(x, t, level=0) for x, t in zip(results, found))


def _ignore(*_: Any) -> None:
    pass
