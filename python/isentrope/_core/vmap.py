"""Batching of the operators, for torch.func.vmap.

A mapped axis becomes a part of the batch. Sinks and their gradients have no batch, so if they differ between samples it
becomes a part of the heads. The remaining calls are a loop: those with dropout, whose mask counts batches and heads, or
packed queries, and those whose documents, page caches or compiled numbers differ between samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import CVmapInterpreterPtr, _add_batch_dim, _unwrap_batched, peek_interpreter_stack

from isentrope._core.library import CHECKED, KERNELS, OPS, TENSOR_AXES

# Dimensions of the arguments and results of operators that are no calls.
_AXES = TENSOR_AXES | dict.fromkeys(("rows", "codes", "scales"), ["batch"]) | {"": ["batch", "heads"]}
# The pages of a sequence may be anywhere in a cache.
_CACHE = ("k", "v", "k_scale", "v_scale")


def call_batched(
    operator: Callable[..., Any], names: Sequence[str], results: Iterable[str], count: int, dims: Sequence[Any], args: Sequence[Any]
) -> tuple[tuple, tuple]:
    """Computes `count` samples, in one call if the arguments allow it. Returns the results, and the mapped axis of each."""
    arguments = dict(zip(names, args, strict=True))
    mapped = [name for name, dim in zip(names, dims) if dim is not None]
    axis = _axis_for(arguments, mapped)
    if axis is None:
        return _one_by_one(operator, count, dims, arguments)
    found = operator(*(_with_samples(x, name, axis, dim, count) for (name, x), dim in zip(arguments.items(), dims)))
    single = isinstance(found, Tensor)
    pairs = [_split(x, name, axis, count) for name, x in zip(results, (found,) if single else found)]
    tensors, places = zip(*pairs)
    return (tensors[0], places[0]) if single else (tensors, places)


def _axis_for(arguments: dict[str, Any], mapped: list[str]) -> str | None:
    """Returns the axis that the mapped ones become a part of; None if there is none."""
    paged = "block_table" in arguments
    axes = {name: [] if paged and name in _CACHE else _AXES.get(name, []) for name in mapped}
    if arguments.get("dropout_p", 0) > 0 or arguments.get("cu_seq_q") is not None:
        return None
    if all("batch" in x for x in axes.values()) and not arguments.get("wants_sinks", False):
        return "batch"
    if paged or not all("heads" in x for x in axes.values()):
        return None
    return "heads" if CHECKED.rule_heads(arguments["rule"]) == 1 else None


def _with_samples(x: Any, name: str, axis: str, dim: int | None, count: int) -> Any:
    """Returns an argument whose axis consists of that of every sample, if it has the axis."""
    axes = _AXES.get(name, [])
    if not isinstance(x, Tensor) or axis not in axes:
        return x
    at = axes.index(axis)
    x = x.unsqueeze(at).expand(*x.shape[:at], count, *x.shape[at:]) if dim is None else x.movedim(dim, at)
    shape = (*x.shape[:at], count * x.shape[at + 1], *x.shape[at + 2 :])
    # Repeated elements, as in broadcast masks, are not copied.
    for other in range(x.dim()):
        if other not in (at, at + 1) and x.stride(other) == 0 and x.shape[other] > 1:
            x = x.narrow(other, 0, 1)
    x = x.flatten(at, at + 1).expand(shape)
    return x.contiguous() if axes[0] == "statistic" else x  # the operators require it of these


def _split(x: Tensor, name: str, axis: str, count: int) -> tuple[Tensor, int | None]:
    """Returns a result with an axis of samples, and its place."""
    if x.shape == (0,):  # a result that was not requested
        return x, None
    at = _AXES[name].index(axis)
    return x.unflatten(at, (count, x.shape[at] // count)), at


def _one_by_one(operator: Callable[..., Any], count: int, dims: Sequence[Any], arguments: dict[str, Any]) -> tuple[Any, Any]:
    def sample(x: Tensor, name: str, dim: int, index: int) -> Tensor:
        x = x.select(dim, index)
        return x.contiguous() if _AXES.get(name, [])[:1] == ["statistic"] else x  # as in _with_samples

    results = [
        operator(*(x if dim is None else sample(x, name, dim, index) for (name, x), dim in zip(arguments.items(), dims)))
        for index in range(count)
    ]
    if isinstance(results[0], Tensor):
        return torch.stack(results), 0
    return tuple(torch.stack(column) for column in zip(*results)), (0,) * len(results[0])


def names_of(operator: Any) -> tuple[list[str], list[str]]:
    """Returns the names of an operator's arguments and results."""
    schema = operator._schema
    return [argument.name for argument in schema.arguments], [result.name or "" for result in schema.returns]


_BATCHED = torch._C.DispatchKeySet(torch._C.DispatchKey.FuncTorchBatched)


def _register(name: str) -> None:
    """Registers what torch.library.register_vmap would, which flattens trees of all arguments: half the time of a small call."""
    operator = getattr(OPS, name).default
    names, results = names_of(operator)

    def batched(*args: Any) -> Any:
        interpreter = peek_interpreter_stack()
        level, count = interpreter.level(), CVmapInterpreterPtr(interpreter).batchSize()
        pairs = [_unwrap_batched(x, level) if isinstance(x, Tensor) else (x, None) for x in args]
        args, dims = zip(*pairs)
        with torch._C._ExcludeDispatchKeyGuard(_BATCHED):
            if all(dim is None for dim in dims):
                return operator(*args)
            found, places = call_batched(operator, names, results, count, dims, args)
        if isinstance(found, Tensor):
            return _add_batch_dim(found, places, level)
        return tuple(x if place is None else _add_batch_dim(x, place, level) for x, place in zip(found, places))

    KERNELS.impl(name, batched, "FuncTorchBatched")


for _name in (
    "attention", "attention_backward", "attention_tangent", "attention_second_tangent", "attention_second_order", "decode", "decode_codes", "quantize",
    "received", "received_paged", "row_lengths", "weights_at", "weights_at_paged",
):  # fmt: skip
    _register(_name)
