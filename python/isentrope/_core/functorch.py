"""Differentiation of operators that torch.func dispatches, as in compiled code and behind torch's own function.

torch.func dispatches autograd functions when Python calls them, but not inside an operator's kernel: there it hides the
dispatch keys by which it would find them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import TransformType, peek_interpreter_stack

_FRONT, _BACK = (getattr(torch._C.DispatchKey, f"FuncTorchDynamicLayer{name}Mode") for name in ("Front", "Back"))


def is_dispatching() -> bool:
    """Returns whether a kernel runs at the top level of torch.func."""
    return torch._C._are_functorch_transforms_active() and torch._C._dispatch_tls_is_dispatch_key_excluded(_FRONT)


def differentiated(function: Any, args: tuple) -> Any:
    """Computes an `OperatorFunction` in its operator's kernel, differentiated by the top level of torch.func."""
    interpreter = peek_interpreter_stack()
    if interpreter is not None and interpreter.key() == TransformType.Jvp:
        return _with_tangents(function, args)
    include, exclude = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    for key in (_FRONT, _BACK):
        include, exclude = include.add(key), exclude.remove(key)
    with torch._C._ForceDispatchKeyGuard(include, exclude):
        return function.of(*args)


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
