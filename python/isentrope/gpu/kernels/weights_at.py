"""Weights of chosen keys: a program reads one row and the keys chosen for it."""

from __future__ import annotations

import triton
import triton.language as tl

from isentrope.gpu.kernels.block import Resolved, Strides, index_of, load_block, offsets_of_keys, place_of_rows
from isentrope.gpu.kernels.dropout import dropout_of
from isentrope.gpu.kernels.softmax import LN2, LOG2E, apply_masks, logits_of, seen_keys
from isentrope.gpu.kernels.tile import Matrix, load_rows


@triton.jit(do_not_specialize=["heads", "kv_heads", "queries", "keys", "dim", "count", "stride_table", "scale_batches", "scale_heads",
                                "least", "query_offset", "key_offset"])  # fmt: skip
def weights_at_kernel(
    q, k, lse, chosen, weights, by_score, by_bias, begins, ends, own_keys, scales, sinks, attn_mask, bias, table,
    stride_qb, stride_qh, stride_qn, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
    heads, kv_heads, queries, keys, dim, count, stride_table, scale_batches, scale_heads, cap,
    seed, least, kept_factor, query_offset, key_offset,
    SHAPE: tl.constexpr, WANTED: tl.constexpr, SINK: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """Program (batch x head x query): stores the weights of keys chosen int64 [batch, heads, queries, count]. The
    derivatives of their logits by the score q.k and by the bias have the same shape. All are 0 where the row sees no such key."""
    place = place_of_rows(0, heads, kv_heads, queries, None, 1, 1, False)
    resolved = Resolved(begins, ends, own_keys, scales, scale_batches, scale_heads, queries)
    block = load_block(
        q, Strides(stride_qb, stride_qh, stride_qn, stride_qd), dim, attn_mask, Strides(stride_mb, stride_mh, stride_mq, stride_mk),
        bias, Strides(stride_bb, stride_bh, stride_bq, stride_bk), place, resolved,
        dropout_of(seed, least, kept_factor, place.batch, query_offset, key_offset, SHAPE), SHAPE, WANTED,
    )  # fmt: skip
    row, _ = index_of(place)
    of_row = tl.load(lse + row)
    kept = tl.full([1], 1.0, tl.float32)
    if SINK:
        kept = 1.0 / (1.0 + tl.exp(tl.load(sinks + place.head) - of_row))
    k += place.kv_head * stride_kh
    if PAGE > 0:
        table += place.sequence * stride_table
    else:
        k += place.batch * stride_kb
    k_rows = Matrix(k, stride_kn, stride_kd, dim)
    view, scales_of_row = block.view, block.scales
    for first in range(0, count, SHAPE.KEYS):
        index = first + tl.arange(0, SHAPE.KEYS)
        listed = index < count
        at = row.to(tl.int64) * count + index
        key = tl.load(chosen + at, mask=listed, other=-1)
        key = tl.where((key >= 0) & (key < keys), key, -1).to(tl.int32)
        there = seen_keys(key, view.begin, view.end, SHAPE.DILATION)
        offsets = offsets_of_keys(tl.where(there, key, view.begin), k_rows, stride_kb, table, PAGE)
        k_tile = load_rows(k_rows, offsets, there, SHAPE.DIM, True, SHAPE.EVEN)
        scores = tl.sum(block.q.to(tl.float32) * k_tile.to(tl.float32), 1)[None, :]
        logits, slope = logits_of(scores, scales_of_row, cap, SHAPE.CAPPED, False)
        logits, seen = apply_masks(logits, view, scales_of_row.on_bias, key, there, SHAPE, False)
        # No logit exceeds its row's lse except by rounding.
        t = tl.minimum(logits - (of_row * LOG2E)[:, None], 0.0, propagate_nan=tl.PropagateNan.ALL)
        factor = (scales_of_row.before * LN2)[:, None]
        if SHAPE.CAPPED:
            factor = factor * slope
        to = at[None, :]
        tl.store(weights + to, tl.where(seen, tl.exp2(t) * kept[:, None], 0.0), mask=listed[None, :])
        tl.store(by_score + to, tl.where(seen, factor, 0.0), mask=listed[None, :])
        tl.store(by_bias + to, tl.where(seen, (scales_of_row.on_bias * LN2)[:, None], 0.0), mask=listed[None, :])
