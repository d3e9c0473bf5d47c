"""Launches rows_kernel, which resolves masks and rule for the other kernels."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from isentrope._core.masks import Masks
from isentrope.gpu.arguments import FUSED, MASK_LISTS, blocks_of, some, strides
from isentrope.gpu.kernels.rows import rows_kernel
from isentrope.gpu.operands import Operands, RuleTables

# Beyond every position, and far from the limits of int64.
_FAR = 1 << 62
_mask_parameters = attrgetter(*(name for name in rows_kernel.arg_names if name in Masks._fields))


def _mask_arguments(masks: Masks, other: Tensor) -> list[Any]:
    """Returns the parts of a mask in the order of rows_kernel."""
    parts = _mask_parameters(masks)
    return [other if x is None else x if type(x) is not int or x < _FAR else _FAR for x in parts]


class Rows(NamedTuple):
    """Results of rows_kernel, which documents them, and the numbers of their batches and heads: 1 if all are alike."""

    batches: int
    heads: int
    begins: Tensor
    ends: Tensor
    own_keys: Tensor
    tiles: Tensor
    scales: Tensor


def resolve_rows(call: Operands, tile: int, lengths: Tensor | None = None, to_lambda: Tensor | None = None) -> Rows:
    """Launches rows_kernel, and returns its results. to_lambda [batch, heads, queries]: receives the statistic lambda, so
    each row of it is resolved."""
    mask, lambda_ = call.attn_mask, call.lambda_
    every = to_lambda is not None or lengths is not None
    by_batch = call.decisions.by_batch or call.used is not None or every
    tables = RuleTables(call) if lambda_ is None else None
    by_head = call.decisions.by_head or tables is not None and tables.heads > 1 or every
    batches, heads = call.batch if by_batch else 1, call.heads if by_head else 1
    tiles = blocks_of(call.queries, tile)
    integers = call.empty(batches * (3 * call.queries + 4 * tiles), torch.int32)
    sizes = (batches * call.queries,) * 3 + (batches * 4 * tiles,)
    scales = call.empty((3, batches, heads, call.queries), torch.float32)
    rows = Rows(*(batches, heads, *integers.split_with_sizes(sizes), scales))  # type: ignore[arg-type]
    count = mask is not None and (every or tables is not None and tables.reads_visible)
    visible, position, total = (tables.visible, tables.position, tables.total) if tables else (scales,) * 3
    # With 64 keys at a time, or 4 warps, the addresses of a boolean mask leave too few registers.
    constants = {flag: getattr(call.masks, name) is not None for name, flag in MASK_LISTS.items()} | {
        "LAMBDA": lambda_ is not None, "TO_LAMBDA": to_lambda is not None, "COUNT": count, "POSITION": tables is not None and position.shape[-1] > 0,
        "TOTAL": tables is not None and total.shape[-1] > 0, "LENGTHS": lengths is not None, "USED": call.used is not None,
        "ROWS": tile, "KEYS": 32, "num_warps": 8 if count else 4, **FUSED,
    }  # fmt: skip
    call.steps.launch(rows_kernel, (tiles * batches * heads, 1, 1), (
        rows.begins, rows.ends, rows.own_keys, scales, rows.tiles, some(to_lambda, scales), some(lengths, integers),
        some(lambda_, scales), *strides(lambda_, 3),
        some(mask, integers), *strides(mask),
        call.sequences if call.cu_seqlens_q is None else len(call.cu_seqlens_q) - 1,
        some(call.used, integers), call.starts, visible, visible.shape[-1], position, tables.position_first if tables else 0, position.shape[-1],
        total, total.shape[-1], tables.heads if tables else 1,
        batches, heads, call.queries, call.keys, *_mask_arguments(call.masks, integers),
    ), constants)  # fmt: skip
    return rows
