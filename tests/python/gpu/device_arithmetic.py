"""Triton's interpreter with the arithmetic of an NVIDIA device, where that differs (docs/contributors/device-arithmetic.md).

`contracted` does not round float32 products before an addition: a device's compiler may contract any such pair, so a
difference is reliably 0 only if it is 0 for every rounding of its terms. `like_a_device` does this and all the rest."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, ReduceOps, TensorHandle

_VIEWS = ("create_broadcast", "create_expand_dims", "create_reshape", "create_trans")
_LEAST = np.float32(2.0**-126)  # the smallest float32 that is no denormal
# Lines of kernels whose remainder may have a sign: the next line adds the divisor, or keys before the first are hidden.
SIGNED = {
    "past = (position - padding) % size",
    "past = (position - begin) % step",
    "seen = seen & ((keys - begin) % DILATION == 0)",
    "seen = (past >= 0) & (key[None, :] < end[:, None]) & (past % dilation == 0)",
    "seen = seen & ((key[None, :] - begin[:, None]) % step == 0)",
}
_GARBAGE = 0xFF  # bits of garbage: NaN as a float16, bfloat16 or float32, and a large negative integer


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


def nearly(x: np.ndarray, error: float, exact: np.ndarray, flush: bool) -> np.ndarray:
    """Returns x with relative errors of up to `error`, except where it is exact. flush: denormals become 0."""
    if x.dtype != np.float32:
        return x
    # A number's own bits choose its error, so that a computation that is repeated gives the same number.
    share = (x.view(np.uint32) * np.uint32(2654435761) >> 8).astype(np.float64) / (1 << 23) - 1
    with np.errstate(all="ignore"):
        inexact = np.where(exact | ~np.isfinite(x), x, x * (1 + error * share)).astype(np.float32)
    return np.where(np.abs(inexact) < _LEAST, np.float32(0), inexact) if flush else inexact


def _unary(function: Callable[..., Any], error: float, flush: bool = True) -> Callable[..., Any]:
    """Approximates a function, exactly at integers."""

    def create(self: Any, x: TensorHandle) -> TensorHandle:
        data = np.where(np.abs(x.data) < _LEAST, x.data.dtype.type(0), x.data) if flush else x.data
        whole = np.asarray(data == np.floor(data))
        return TensorHandle(nearly(np.asarray(function(data)), error, whole, flush), x.dtype.scalar)

    return create


def _divide(self: Any, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
    power = np.asarray(np.frexp(np.abs(rhs.data))[0] == 0.5)
    return TensorHandle(nearly(np.asarray(np.divide(lhs.data, rhs.data)), 2.0**-22, power, False), lhs.dtype.scalar)


def _of_non_negative(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Division of integers rounds toward 0, where a reader expects the floor. Refuses where both differ, except SIGNED
    ones."""

    def create(self: Any, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        if (np.asarray(lhs.data) < 0).any() or (np.asarray(rhs.data) <= 0).any():
            line = kernel_line()
            if line not in SIGNED:
                raise ArithmeticError(f"division of negative integers: {line}")
        return operation(self, lhs, rhs)

    return create


def kernel_line() -> str:
    """Returns the line of the kernel that is being interpreted."""
    frame = sys._getframe()
    while frame and "/isentrope/gpu/kernels/" not in frame.f_code.co_filename and "test_" not in frame.f_code.co_filename:
        frame = frame.f_back
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip() if frame else ""


def _load(load: Callable[..., Any]) -> Callable[..., Any]:
    """A masked load without another value reads whatever the register had."""

    def create(self: Any, ptrs: TensorHandle, mask: TensorHandle, other: TensorHandle | None, *arguments: Any) -> TensorHandle:
        result = load(self, ptrs, mask, other, *arguments)
        if other is None and not np.all(mask.data):
            garbage = np.full(result.data.nbytes, _GARBAGE, np.uint8).view(result.data.dtype).reshape(result.data.shape)
            result.data = np.where(mask.data, result.data, garbage)
        return result

    return create


def _sum(self: Any, x: Any) -> Any:
    """Adds in another order: neighbours come last, as between the threads of a warp."""
    data = np.moveaxis(x.handle.data, 0 if self.axis is None else self.axis, -1)
    while data.shape[-1] > 1 and data.shape[-1] % 2 == 0:
        half = data.shape[-1] // 2
        data = data[..., :half] + data[..., half:]
    total = np.moveaxis(data.sum(-1, keepdims=True), -1, 0 if self.axis is None else self.axis)
    return self.to_tensor(total if self.keep_dims else total.squeeze(self.axis), x.dtype)


def _dot(self: Any, a: TensorHandle, b: TensorHandle, d: TensorHandle, *options: Any) -> TensorHandle:
    """Multiplies float32 as three products of tf32, which are exact for numbers of 16 bits."""
    (a_big, a_small), (b_big, b_small) = tf32(a.data), tf32(b.data)
    small = a_small @ b_big + a_big @ b_small
    return TensorHandle(np.where(np.isnan(small), np.float32(0), small) + a_big @ b_big + d.data, d.dtype.scalar)


def tf32(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns x rounded to tf32, 10 bits of the mantissa, and the remainder truncated to tf32 as tensor cores do."""

    def leading(x: np.ndarray, half: int) -> np.ndarray:
        return ((np.ascontiguousarray(x).view(np.uint32) + np.uint32(half)) & np.uint32(0xFFFFE000)).view(np.float32)

    big = leading(x.astype(np.float32), 0x1000)
    return big, leading(x - big, 0)


@contextmanager
def like_a_device() -> Iterator[None]:
    """Computes as a device may, in every kernel interpreted in the block: contracted, with approximate functions that
    flush denormals, sums in another order, products of tf32, and garbage from masked loads without another value."""
    builder = InterpreterBuilder
    methods = {
        "create_exp2": _unary(np.exp2, 2.0**-22), "create_exp": _unary(np.exp, 2.0**-21), "create_log2": _unary(np.log2, 2.0**-23, False),
        "create_sqrt": _unary(np.sqrt, 2.0**-23), "create_fdiv": _divide, "create_dot": _dot,
        "create_masked_load": _load(builder.create_masked_load),
        "create_sdiv": _of_non_negative(builder.create_sdiv), "create_srem": _of_non_negative(builder.create_srem),
    }  # fmt: skip
    with contracted(), mock.patch.multiple(builder, **methods), mock.patch.object(ReduceOps, "sum", _sum):
        yield
