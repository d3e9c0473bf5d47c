"""Finds the key of each row's largest logit, the first of several, if max_probability has an upstream gradient.

The forward pass does not record it, which would slow every call.
"""

from __future__ import annotations

import triton
import triton.language as tl

from isentrope.gpu.kernels.gradient_rows import LARGEST_KEY, TERMS
from isentrope.gpu.kernels.gradient_tile import load_query_block, memory_of
from isentrope.gpu.kernels.softmax import LN2, apply_masks, logits_of
from isentrope.gpu.kernels.span import all_masked, program, sees_keys, span_of_keys, visit
from isentrope.gpu.kernels.tile import Matrix, dot, full, load_rows, zeros

FAR = tl.constexpr((1 << 31) - 1)
# In part of a sequence, a logit this close to the row's largest one counts as equal, because another call rounded that.
NEAR = tl.constexpr(1e-3)


@triton.jit
def process_key_tile(tile, found, block, k, stop, cap, SHAPE: tl.constexpr, MASKED: tl.constexpr):
    """Updates the largest logit and its key by one tile of keys."""
    most, largest = found
    key = tile * SHAPE.KEYS + tl.arange(0, SHAPE.KEYS)
    inside = key < stop
    named = tl.where(inside, key, 0).to(tl.int64)
    k_tile = load_rows(k, named * k.to_row, inside, SHAPE.DIM, True, SHAPE.EVEN)
    scores = dot(block.q, tl.trans(k_tile), zeros(SHAPE.ROWS, SHAPE.KEYS), SHAPE)
    logits, _ = logits_of(scores, block.scales, cap, SHAPE.CAPPED, False)
    logits, _ = apply_masks(logits, block.view, block.scales.on_bias, key, inside, SHAPE, False)
    here = tl.max(logits, 1)
    first = tl.min(tl.where(logits == here[:, None], key[None, :], FAR), 1)
    return tl.maximum(most, here), tl.where(here > most, first, largest)


@triton.jit(do_not_specialize=["heads", "kv_heads", "queries", "keys", "dim", "value_dim", "least", "query_offset", "key_offset", "place"])  # fmt: skip
def largest_key_kernel(
    q, k, d_output, terms, statistics, attn_mask, bias,
    stride_qb, stride_qh, stride_qn, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_gb, stride_gh, stride_gn, stride_gd,
    stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
    heads, kv_heads, queries, keys, dim, value_dim, cap,
    seed, least, kept_factor, query_offset, key_offset, place, SHAPE: tl.constexpr, GIVEN: tl.constexpr, IS_PART: tl.constexpr,
):  # fmt: skip
    """Program (batch x head x query block): stores the index of the largest key, int32 bits, as the last of the rows'
    terms. It is -1 if there is none in this call. place: slice of max_logit in the statistics."""
    tile, lane, lanes = program(tl.cdiv(queries, SHAPE.ROWS))
    query = tile * SHAPE.ROWS + tl.arange(0, SHAPE.ROWS)
    batch, head = (lane // heads).to(tl.int64), (lane % heads).to(tl.int64)
    memory = memory_of(
        batch, q, d_output, terms, attn_mask, bias,
        stride_qb, stride_qh, stride_qn, stride_qd, stride_gb, stride_gh, stride_gn, stride_gd,
        stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
        heads, queries, dim, value_dim,
        seed, least, kept_factor, query_offset, key_offset, SHAPE,
    )  # fmt: skip
    block = load_query_block(memory, head, tile * SHAPE.ROWS, SHAPE, GIVEN, True)
    rows, view = block.view.rows, block.view
    k_rows = Matrix(k + batch * stride_kb + head // (heads // kv_heads) * stride_kh, stride_kn, stride_kd, dim)
    found = (full(SHAPE.ROWS, float("-inf"), tl.float32), full(SHAPE.ROWS, -1, tl.int32))
    stop = tl.max(tl.where(rows, view.end, 0), 0)
    span = all_masked(span_of_keys(view, view.end, SHAPE.KEYS))
    most, largest = visit(span, sees_keys, (block,), process_key_tile, found, (k_rows, stop, cap), SHAPE, None, True)
    plane = lanes.to(tl.int64) * queries
    row = lane.to(tl.int64) * queries + query
    if IS_PART:
        of_all = tl.load(statistics + place * plane + row, mask=rows, other=0.0)
        largest = tl.where(of_all - most * LN2 > NEAR * (1.0 + tl.abs(of_all)), -1, largest)
    tl.store(terms + row * TERMS + LARGEST_KEY, largest.to(tl.float32, bitcast=True), mask=rows)
