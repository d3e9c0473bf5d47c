"""Shapes and layouts of the operators' results, for tracing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isentrope._core.call import SHARED
from isentrope._core.checks import check_ranks
from isentrope._core.library import SUPPORT


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


for _name in ("attention", "decode", "decode_codes"):
    torch.library.register_fake(f"isentrope::{_name}", _fake_results)


@torch.library.register_fake("isentrope::quantize")
def _(rows: Tensor, groups: Any) -> tuple[Tensor, Tensor]:
    codes = torch.empty(rows.shape, dtype=torch.int8, device=rows.device)
    return codes, torch.empty((*rows.shape[:3], groups), dtype=torch.float32, device=rows.device)


@torch.library.register_fake("isentrope::write_cache")
def _(k: Tensor, *args: Any) -> None:
    pass


@torch.library.register_fake("isentrope::row_lengths")
def _(q: Tensor, *args: Any) -> Tensor:
    return q.new_empty(q.shape[:3], dtype=torch.int64)


@torch.library.register_fake("isentrope::received")
def _(q: Tensor, k: Tensor, *args: Any) -> Tensor:
    return _of_keys(q, len(q), k.shape[2])


@torch.library.register_fake("isentrope::received_paged")
def _(q: Tensor, k: Tensor, *args: Any) -> Tensor:
    return _of_keys(q, len(args[-3]), args[-3].shape[1] * k.shape[2])


def _of_keys(q: Tensor, sequences: Any, keys: Any) -> Tensor:
    return q.new_empty((sequences, q.shape[1], keys), dtype=_of_statistics(q))


@torch.library.register_fake("isentrope::decode_received")
def _(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    *_, table, _, _, _ = rest
    return *_fake_results(q, k, v, *rest), _of_keys(q, len(table), table.shape[1] * k.shape[2])


def _fake_weights(q: Tensor, *args: Any) -> tuple[Tensor, ...]:
    keys = args[SHARED]
    return tuple(q.new_empty(keys.shape, dtype=_of_statistics(q)) for _ in range(3))


for _name in ("weights_at", "weights_at_paged"):
    torch.library.register_fake(f"isentrope::{_name}", _fake_weights)


@torch.library.register_fake("isentrope::keys_seen")
def _(q: Tensor, *args: Any) -> Tensor:
    return q.new_empty((q.shape[0], args[-1].shape[0], 2), dtype=torch.int64)


@torch.library.register_fake("isentrope::check_call")
def _(*args: Any) -> None:
    check_ranks(**dict(zip("qkv", args)))


@torch.library.register_fake("isentrope::attention_backward")
def _(*args: Any) -> tuple[Tensor, ...]:
    q, k, v = args[:3]
    return gradient_results(q, k, v, *args[-4:])


@torch.library.register_fake("isentrope::attention_tangent")
@torch.library.register_fake("isentrope::attention_second_tangent")
def _(*args: Any) -> tuple[Tensor, Tensor]:
    q, _, v, wanted = *args[:3], args[SHARED]
    return results_of(q, v.shape[3], wanted)[:2]


@torch.library.register_fake("isentrope::attention_second_order")
def _(*args: Any) -> tuple[Tensor, ...]:
    return gradient_results(*(*args[:3], *args[-3:], False))


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
