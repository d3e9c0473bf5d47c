"""Sums of the backward pass over rows or columns alone: norms of values, which only float16 needs, and gradients of sinks."""

from __future__ import annotations

import triton
import triton.language as tl

from isentrope.gpu.kernels.gradient_rows import load_floats
from isentrope.gpu.kernels.span import program
from isentrope.gpu.kernels.tile import full


@triton.jit
def seen_by_some(
    seen, attn_mask, bias, stride_mq, stride_mk, stride_bq, stride_bk, key, inside, queries,
    ATTN_MASK: tl.constexpr, BIAS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Adds the keys that a head's boolean mask and bias leave to some row. Both begin at the head's first row."""
    for start in range(0, queries, ROWS):
        row = (start + tl.arange(0, ROWS)).to(tl.int64)
        there = (row < queries)[:, None] & inside[None, :]
        left = there
        if ATTN_MASK:
            left = left & (tl.load(attn_mask + row[:, None] * stride_mq + key[None, :] * stride_mk, mask=there, other=0) != 0)
        if BIAS:
            on_logits = tl.load(bias + row[:, None] * stride_bq + key[None, :] * stride_bk, mask=there, other=float("-inf"))
            left = left & (on_logits != float("-inf"))
        seen = tl.maximum(seen, tl.max(left.to(tl.int32), 0))
    return seen


@triton.jit(do_not_specialize=["heads", "kv_heads", "queries", "keys", "value_dim"])
def value_norms_kernel(
    v, norms, attn_mask, bias, stride_vb, stride_vh, stride_vn, stride_vd,
    stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
    heads, kv_heads, queries, keys, value_dim,
    COLUMNS: tl.constexpr, ATTN_MASK: tl.constexpr, BIAS: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Program (batch x key head x tile of keys): stores norms of values, f32 [batch, kv_heads, keys]. They are 0 for keys
    that a boolean mask and a bias hide from every row."""
    tile, lane, _ = program(tl.cdiv(keys, KEYS))
    index = tile * KEYS + tl.arange(0, KEYS)
    inside = index < keys
    batch, kv_head, key = (lane // kv_heads).to(tl.int64), (lane % kv_heads).to(tl.int64), index.to(tl.int64)
    values = load_floats(v, stride_vb, stride_vh, stride_vn, stride_vd, value_dim, batch, kv_head, index, inside, COLUMNS)
    norm = tl.sqrt(tl.sum(values * values, 1))
    if ATTN_MASK or BIAS:
        seen = full(KEYS, 0, tl.int32)
        group = heads // kv_heads
        for head in range(0, group):
            its = kv_head * group + head
            seen = seen_by_some(
                seen, attn_mask + batch * stride_mb + its * stride_mh, bias + batch * stride_bb + its * stride_bh,
                stride_mq, stride_mk, stride_bq, stride_bk, key, inside, queries, ATTN_MASK, BIAS, ROWS,
            )  # fmt: skip
        norm = tl.where(seen > 0, norm, 0.0)
    tl.store(norms + lane.to(tl.int64) * keys + key, norm, mask=inside)


@triton.jit(do_not_specialize=["batches", "heads", "queries"])
def sink_gradient_kernel(d_sinks, d_sink, batches, heads, queries, ROWS: tl.constexpr):
    """Program (head): sums the gradients of its sink over all rows, in a fixed order. d_sinks f32 [batches, heads, queries]."""
    head = tl.program_id(0)
    total = full(ROWS, 0.0, tl.float32)
    first = d_sinks + head.to(tl.int64) * queries
    for _ in range(0, batches):
        for start in range(0, queries, ROWS):
            row = start + tl.arange(0, ROWS)
            total += tl.load(first + row, mask=row < queries, other=0.0)
        first += heads.to(tl.int64) * queries
    tl.store(d_sink + head, tl.sum(total, 0))
