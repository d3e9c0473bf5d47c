"""Shapes and layouts of the operators' results, for tracing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from isentrope._core.call import SHARED
from isentrope._core.checks import check_ranks
from isentrope._core.library import KERNELS, SUPPORT


def _laid_out_as(like: Tensor, rows: Any, columns: Any, dtype: torch.dtype | None = None) -> Tensor:
    """Returns an empty result in the kernels' layout: heads inside rows if `like` has them so."""
    batch, heads = like.shape[:2]
    if like.stride(1) < like.stride(2):
        return like.new_empty((batch, rows, heads, columns), dtype=dtype).transpose(1, 2)
    return like.new_empty((batch, heads, rows, columns), dtype=dtype)


def _of_statistics(q: Tensor) -> torch.dtype:
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def results_of(q: Tensor, columns: Any, wanted: int) -> tuple[Tensor, Tensor, Tensor]:
    rows = q.shape[:3]
    count = (wanted & (SUPPORT - 1)).bit_count()
    support = rows if wanted & SUPPORT else (0,)
    return (
        _laid_out_as(q, q.shape[2], columns),
        q.new_empty((count, *rows), dtype=_of_statistics(q)),
        q.new_empty(support, dtype=torch.int64),
    )


def _fake_results(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    *_, wanted = rest
    check_ranks(q=q, k=k, v=v)
    return results_of(q, v.shape[3], wanted)


def _quantized(rows: Tensor, groups: Any) -> tuple[Tensor, Tensor]:
    codes = torch.empty(rows.shape, dtype=torch.int8, device=rows.device)
    return codes, torch.empty((*rows.shape[:3], groups), dtype=torch.float32, device=rows.device)


def _of_keys(q: Tensor, sequences: Any, keys: Any) -> Tensor:
    return q.new_empty((sequences, q.shape[1], keys), dtype=_of_statistics(q))


def _of_pages(q: Tensor, k: Tensor, table: Tensor) -> Tensor:
    return _of_keys(q, len(table), table.shape[1] * k.shape[2])


def _fake_weights(q: Tensor, *args: Any) -> tuple[Tensor, ...]:
    return tuple(q.new_empty(args[SHARED].shape, dtype=_of_statistics(q)) for _ in range(3))


def _fake_tangents(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return results_of(q, v.shape[3], rest[SHARED - 3])[:2]


def gradient_results(
    q: Tensor, k: Tensor, v: Tensor, wants_bias: bool, wants_lambda: bool, wants_sinks: bool, in_float32: bool
) -> tuple[Tensor, ...]:
    def optional(want: bool, *shape: Any) -> Tensor:
        return q.new_empty(shape if want else (0,), dtype=_of_statistics(q))

    return (
        *(_laid_out_as(x, x.shape[2], x.shape[3], _of_statistics(q) if in_float32 else x.dtype) for x in (q, k, v)),
        optional(wants_bias, *q.shape[:3], k.shape[2]),
        optional(wants_lambda, *q.shape[:3]),
        optional(wants_sinks, q.shape[1]),
    )


_FAKES: dict[str, Callable[..., Any]] = {
    "attention": _fake_results,
    "attention_backward": lambda q, k, v, *rest: gradient_results(q, k, v, *rest[-4:]),
    "attention_second_order": lambda q, k, v, *rest: gradient_results(q, k, v, *(*rest[-3:], False)),
    "attention_second_tangent": _fake_tangents,
    "attention_tangent": _fake_tangents,
    "check_call": lambda *args: check_ranks(**dict(zip("qkv", args))),
    "decode": _fake_results,
    "decode_codes": _fake_results,
    "decode_received": lambda q, k, v, *rest: (*_fake_results(q, k, v, *rest), _of_pages(q, k, rest[-4])),
    "keys_seen": lambda q, *args: q.new_empty((q.shape[0], args[-1].shape[0], 2), dtype=torch.int64),
    "quantize": _quantized,
    "received": lambda q, k, *args: _of_keys(q, len(q), k.shape[2]),
    "received_paged": lambda q, k, *args: _of_pages(q, k, args[-3]),
    "row_lengths": lambda q, *args: q.new_empty(q.shape[:3], dtype=torch.int64),
    "weights_at": _fake_weights,
    "weights_at_paged": _fake_weights,
    "write_cache": lambda *args: None,
}
# As kernels of meta tensors: register_fake looks up its caller's source each time, a quarter of the package's import.
for _name, _fake in _FAKES.items():
    KERNELS.impl(_name, _fake, "Meta")
