"""Triton's interpreter with a device's fused multiply-adds: float32 products are not rounded before an addition.

A device's compiler may contract any such pair, so a difference is reliably 0 only if it is 0 for every rounding of its
terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

_VIEWS = ("create_broadcast", "create_expand_dims", "create_reshape", "create_trans")




def _multiply(multiply: Callable[..., Any]) -> Callable[..., Any]:
    def create_fmul(self: Any, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        result = multiply(self, lhs, rhs)
        if result.data.dtype == np.float32:
            result.exact = lhs.data.astype(np.float64) * rhs.data.astype(np.float64)
        return result

    return create_fmul


def _add(add: Callable[..., Any], operation: Callable[..., Any]) -> Callable[..., Any]:
    def create(self: Any, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        result = add(self, lhs, rhs)
        if hasattr(lhs, "exact"):
            # One of two products is rounded.
            result.data = operation(lhs.exact, rhs.data.astype(np.float64)).astype(np.float32)
        elif hasattr(rhs, "exact"):
            result.data = operation(lhs.data.astype(np.float64), rhs.exact).astype(np.float32)
        return result

    return create


def _view(view: Callable[..., Any]) -> Callable[..., Any]:
    """Moving values does not prevent contraction."""

    def create(self: Any, handle: TensorHandle, *arguments: Any) -> TensorHandle:
        result = view(self, handle, *arguments)
        if hasattr(handle, "exact"):
            result.exact = view(self, TensorHandle(handle.exact, tl.float64), *arguments).data
        return result

    return create


@contextmanager
def contracted() -> Iterator[None]:
    """Contracts every product with the sum or difference that uses it, in every kernel interpreted in the block."""
    methods = {"create_fmul": _multiply(InterpreterBuilder.create_fmul)}
    methods["create_fadd"] = _add(InterpreterBuilder.create_fadd, np.add)
    methods["create_fsub"] = _add(InterpreterBuilder.create_fsub, np.subtract)
    methods |= {name: _view(getattr(InterpreterBuilder, name)) for name in _VIEWS}
    with mock.patch.multiple(InterpreterBuilder, **methods):
        yield
