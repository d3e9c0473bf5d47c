"""Checks each argument of a call as far as the library cannot, and converts it for the operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isentrope._core.library import DEFAULTS, refuse_arguments
from isentrope._core.values import checked_number, is_integer, shown


def kind(value: object) -> str:
    if isinstance(value, Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{dtype} nested" if value.is_nested else f"{dtype} {list(value.shape)}"
    return type(value).__name__


def check_ranks(**tensors: Tensor) -> None:
    for name, tensor in tensors.items():
        if tensor.dim() != 4:
            raise ValueError(f"[attention] {name} must have 4 dimensions; got {tensor.dim()}")


def check_dense(**tensors: Tensor) -> None:
    """Raises ValueError unless the tensors are dense with four dimensions, before other checks."""
    check_ranks(**tensors)
    if not torch.compiler.is_compiling():  # compilers support dense tensors only
        refuse_arguments(tensors.items())


def check_sinks(sinks: Tensor | None, q: Tensor) -> None:
    if sinks is None:
        return
    refuse_arguments([("sinks", sinks)])
    if sinks.shape != q.shape[1:2]:
        raise ValueError(
            f"[attention] sinks must have a number for each of the {q.shape[1]} heads; got {list(sinks.shape)}"
        )


def _expanded(name: str, tensor: Tensor, shape: tuple) -> Tensor:
    try:
        return tensor.expand(shape)
    except RuntimeError:
        raise ValueError(
            f"[attention] {name} must be broadcastable to {list(shape)}; got {list(tensor.shape)}"
        ) from None


def _weights_shape(q: Tensor, k: Tensor) -> tuple:
    check_ranks(q=q, k=k)
    return (*q.shape[:3], k.shape[2])


# Checks of arguments: each takes the name, the value, q and k, and returns the operators' argument.


def _mask(name: str, mask: Any, q: Tensor, k: Tensor) -> Tensor:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise TypeError(
            f"[attention] {name} must be a bool tensor, or for `attention` a floating-point tensor, which is "
            f"added to the logits; got {kind(mask)}"
        )
    return _expanded(name, on_device_of(q, name, mask), _weights_shape(q, k))


def on_device_of(q: Tensor, name: str, tensor: Tensor) -> Tensor:
    if tensor.device != q.device:
        raise ValueError(f"[attention] {name} must be on {q.device}, as q does; got {tensor.device}")
    return tensor


def _floats(name: str, tensor: Any, q: Tensor, k: Tensor) -> Tensor:
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        raise TypeError(f"[attention] {name} must be a floating-point tensor; got {kind(tensor)}")
    return on_device_of(q, name, tensor).to(torch.float64 if q.dtype is torch.float64 else torch.float32)


def _bias(name: str, bias: Any, q: Tensor, k: Tensor) -> Tensor:
    return _expanded(name, _floats(name, bias, q, k), _weights_shape(q, k))


def per_row(name: str, tensor: Any, q: Tensor, k: Tensor) -> Tensor:
    return _expanded(name, _floats(name, tensor, q, k), tuple(q.shape[:3]))


def each_row(name: str, tensor: Any, q: Tensor, k: Tensor) -> Tensor:
    """Checks numbers of rows that another row must not have, so they are not broadcast."""
    numbers = _floats(name, tensor, q, k)
    if numbers.shape != q.shape[:3]:
        raise ValueError(f"[attention] {name} must have the shape {list(q.shape[:3])}; got {list(numbers.shape)}")
    return numbers


def integers(name: str, tensor: Any, q: Tensor, k: Tensor) -> Tensor:
    if not isinstance(tensor, Tensor) or tensor.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"[attention] {name} must be an int32 or int64 tensor; got {kind(tensor)}")
    return on_device_of(q, name, tensor).long()


def _per_sequence(name: str, value: Any, q: Tensor, k: Tensor) -> Tensor:
    if is_integer(value):
        value = q.new_full(q.shape[:1], value, dtype=torch.int64)
    return integers(name, value, q, k)


def _integer(name: str, value: Any, q: Tensor, k: Tensor) -> int:
    # Larger integers fail later with an error that names them; a compiler would treat a comparison here as a branch.
    if not is_integer(value):
        raise TypeError(f"[attention] {name} must be an integer; got {shown(value)}")
    return value


def _seed(name: str, seed: Any, q: Tensor, k: Tensor) -> Tensor:
    if is_integer(seed):
        return torch.full((), seed, dtype=torch.int64, device=q.device)
    if not isinstance(seed, Tensor) or seed.dtype != torch.int64 or seed.dim() != 0:
        raise TypeError(f"[attention] {name} must be an integer or a 0-dimensional int64 tensor; got {kind(seed)}")
    return on_device_of(q, name, seed)


# Check by the type of the default, except for floating-point tensors.
_BY_DEFAULT = {type(None): integers, int: _integer, float: lambda name, value, *_: checked_number("attention", name, value)}
CHECKS = {name: _BY_DEFAULT[type(value)] for name, value in DEFAULTS.items() if type(value) in _BY_DEFAULT}
CHECKS |= dict.fromkeys(("compiled_scale", "compiled_soft_cap"), lambda _, value, *__: value)
CHECKS |= {
    "lambda_": per_row, "attn_mask": _mask, "bias": _bias, "sinks": _floats, "prefix_keys": _per_sequence,
    "dropout_seed": _seed,
}  # fmt: skip
