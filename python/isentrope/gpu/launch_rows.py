"""Launches rows_kernel, which resolves masks and rule for the other kernels."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import torch
from torch import Tensor

from isentrope._core.masks import Masks
from isentrope.gpu.arguments import FUSED, MASK_LISTS, blocks_of, some, strides
from isentrope.gpu.kernels.rows import rows_kernel
from isentrope.gpu.kernels.softmax import LOG2E
from isentrope.gpu.operands import Operands, RuleTables

# Beyond every position, and far from the limits of int64.
_FAR = 1 << 62


def _mask_arguments(masks: Masks, other: Tensor) -> dict[str, Any]:
    """Returns the parts of a mask by their names in rows_kernel."""
    return {name: other if x is None else x if type(x) is not int or x < _FAR else _FAR for name, x in zip(Masks._fields, masks)}


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
    begins, ends, own_keys, of_tiles = integers.split_with_sizes(sizes)
    count = mask is not None and (every or tables is not None and tables.reads_visible)
    visible, position, total = (tables.visible, tables.position, tables.total) if tables else (scales,) * 3
    # With 64 keys at a time, or 4 warps, the addresses of a boolean mask leave too few registers.
    constants = {flag: getattr(call.masks, name) is not None for name, flag in MASK_LISTS.items()} | {
        "LAMBDA": lambda_ is not None, "TO_LAMBDA": to_lambda is not None, "COUNT": count, "POSITION": tables is not None and position.shape[-1] > 0,
        "TOTAL": tables is not None and total.shape[-1] > 0, "LENGTHS": lengths is not None, "USED": call.used is not None,
        "ROWS": tile, "KEYS": 32, "num_warps": 8 if count else 4, **FUSED,
    }  # fmt: skip
    call.steps.launch(rows_kernel, (tiles * batches * heads, 1, 1), {
        **_mask_arguments(call.masks, integers), "batches": batches, "heads": heads, "begins": begins, "ends": ends, "own_keys": own_keys,
        "tiles": of_tiles, "scales": scales, "to_lambda": some(to_lambda, scales), "lengths": some(lengths, integers),
        "lambda_": some(lambda_, scales), "attn_mask": some(mask, integers), **strides("m l", mask, lambda_),
        "documents": call.sequences if call.cu_seqlens_q is None else len(call.cu_seqlens_q) - 1,
        "used": some(call.used, integers), "starts": call.starts, "visible_table": visible, "visible_count": visible.shape[-1],
        "position_table": position, "position_first": tables.position_first if tables else 0, "position_count": position.shape[-1],
        "total_table": total, "total_count": total.shape[-1], "rule_heads": tables.heads if tables else 1,
        "queries": call.queries, "keys": call.keys,
    }, constants)  # fmt: skip
    return Rows(batches, heads, begins, ends, own_keys, of_tiles, scales)


def tile_arguments(call: Operands, rows: Rows, arrays: str, *tensors: Tensor) -> dict[str, Any]:
    """Returns the arguments that kernels of tiles have in common, by their names. Results of rows_kernel are placeholders too.

    arrays, tensors: more of `strides`."""
    p = ctypes.c_float(call.dropout_p).value
    return {
        "q": call.q, "k": call.k, "v": call.v,
        **strides("q k v m b " + arrays, call.q, call.k, call.v, call.attn_mask, call.bias, *tensors),
        "begins": rows.begins, "ends": rows.ends, "own_keys": rows.own_keys, "scales": rows.scales,
        "scale_batches": rows.batches, "scale_heads": rows.heads, "span_batches": rows.batches,
        "attn_mask": some(call.attn_mask, rows.begins), "bias": some(call.bias, rows.scales), "sinks": some(call.sinks, rows.scales),
        "table": rows.begins if call.table is None else call.table, "stride_table": 0 if call.table is None else call.table.stride(0),
        "used": rows.begins if call.used is None else call.used, "starts": call.starts, "batches": call.batch, "heads": call.heads, "kv_heads": call.kv_heads,
        "queries": call.queries, "keys": call.keys, "dim": call.dim, "value_dim": call.value_dim, "cap": call.soft_cap * LOG2E.value,
        # The seed, the least bits of a kept weight, its factor, and the offsets of positions.
        "seed": call.q if call.dropout_seed is None else call.dropout_seed, "least": round(p * 2**32), "kept_factor": 1 / (1 - p),
        "query_offset": call.query_offset, "key_offset": call.key_offset,
    }  # fmt: skip
