"""Keys against the queries that see them: dk and dv, in one launch or in two. Tiles are transposed, [keys, queries]."""

from __future__ import annotations

import triton
import triton.language as tl

from isentrope.gpu.kernels.block import Strides
from isentrope.gpu.kernels.gradient_range import exponent, largest_bound
from isentrope.gpu.kernels.gradient_tile import (
    block_sees, load_query_block, memory_of, scaled_terms, tile_gradients, tile_weights, value_weights,
)
from isentrope.gpu.kernels.softmax import LN2, apply_masks
from isentrope.gpu.kernels.span import count_of, load_span, program, tile_at
from isentrope.gpu.kernels.tile import (
    F16_FACTOR, Matrix, cast, dot, finite_part, load_rows, nonfinite_flag, propagate_nonfinite, store_inf,
    store_rows, zeros,
)


@triton.jit
def process_query_block(
    tile, head, dk, dv, shrink, k_tile, v_tile, key, first_key, inside, memory, cap,
    SHAPE: tl.constexpr, GIVEN: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, MASKED: tl.constexpr, REPAIR: tl.constexpr,
    CHECKED: tl.constexpr,
):  # fmt: skip
    """Adds the gradient of one query block to a key block, times `shrink` relative to the lift of its rows.
    CHECKED: as in forward."""
    block = load_query_block(memory, head, tile * SHAPE.ROWS, SHAPE, GIVEN, MASKED)
    nothing = zeros(SHAPE.KEYS, SHAPE.ROWS)
    scores = dot(k_tile, tl.trans(block.q), nothing, SHAPE)
    weights = tile_weights(scores, block, key, first_key, inside, cap, SHAPE, MASKED, True)
    q, upstream = block.q, block.upstream
    if MASKED and REPAIR:
        q, upstream = finite_part(q), finite_part(upstream)
    if DV:
        p = value_weights(weights, block.terms.share, SHAPE, GIVEN, MASKED and REPAIR)
        dv = dot(cast(p, upstream.dtype), upstream, dv, SHAPE)
    if DK:
        dp = dot(v_tile, tl.trans(block.upstream), nothing, SHAPE)
        # Sums run over rows, so each row's lambda, apart from log2 e, multiplies its terms.
        terms = scaled_terms(block.terms, block.scales.before * shrink, GIVEN)
        _, ds = tile_gradients(
            weights, dp, terms, block.dropout.factor, key, first_key, True, SHAPE, GIVEN, MASKED and REPAIR,
            CHECKED and not MASKED, True,
        )  # fmt: skip
        dk = dot(cast(ds, q.dtype), q, dk, SHAPE)
    return dk, dv


@triton.jit
def process_nonfinite_queries(tile, head, dk, dv, key, inside, memory, SHAPE: tl.constexpr, GIVEN: tl.constexpr):
    """Propagates non-finite queries and upstream gradients of a query block to the keys that their rows see."""
    block = load_query_block(memory, head, tile * SHAPE.ROWS, SHAPE, GIVEN, True)
    nothing = zeros(SHAPE.KEYS, SHAPE.ROWS)
    _, seen = apply_masks(nothing, block.view, block.scales.on_bias, key, inside, SHAPE, True)
    return propagate_nonfinite(seen, block.q, dk, SHAPE), propagate_nonfinite(seen, block.upstream, dv, SHAPE)


@triton.jit
def visit_all_wrong_queries(span, kv_head, group, key, inside, memory, SHAPE: tl.constexpr, GIVEN: tl.constexpr):
    acc_k, acc_v = zeros(SHAPE.KEYS, SHAPE.DIM), zeros(SHAPE.KEYS, SHAPE.COLUMNS)
    for head in range(kv_head * group, (kv_head + 1) * group):
        for step in range(0, count_of(span, True)):
            acc_k, acc_v = process_nonfinite_queries(tile_at(step, span, True), head, acc_k, acc_v, key, inside, memory, SHAPE, GIVEN)
    return acc_k, acc_v


@triton.jit
def row_offset(batch, head, to_batch, to_head):
    """Returns the first row of a head. The head is 32 bits wide until here, because wider loop variables take
    registers."""
    return batch * to_batch + head.to(tl.int64) * to_head


@triton.jit
def load_of_head(x, to, columns, batch, head, key, inside, COLUMNS: tl.constexpr, EVEN: tl.constexpr):
    """Loads rows `key` of a head; `to`: the strides of x."""
    at = row_offset(batch, head, to.batch, to.head) + key * to.row
    return load_rows(Matrix(x, to.row, to.column, columns), at, inside, COLUMNS, True, EVEN)


@triton.jit
def shrink_factor(bounds, span, queries, kv_head, group, ROWS: tl.constexpr):
    """Returns the factor that brings gradients of logits of a span's rows into the range of float16."""
    first, last = span.first * ROWS, tl.minimum(span.last * ROWS, queries)
    return tl.exp2(-exponent(largest_bound(bounds, queries, kv_head * group, group, first, last)))


@triton.jit
def visit_all_queries(
    span, spans, its_span, kv_head, group, shrink, k_tile, v_tile, key, first_key, inside, memory, cap,
    SHAPE: tl.constexpr, GIVEN: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, REPAIR: tl.constexpr, CHECKED: tl.constexpr,
):  # fmt: skip
    """Returns a key block's sums over the query blocks of a span, for all heads that read it."""
    acc_k, acc_v = zeros(SHAPE.KEYS, SHAPE.DIM), zeros(SHAPE.KEYS, SHAPE.COLUMNS)
    for masked in tl.static_range(2):
        if masked == 1 or not SHAPE.MASKED:
            if k_tile.dtype == tl.float16:
                # Loaded again, because keeping it across the loop spilled 8 bytes with the lift.
                span = load_span(spans, its_span, SHAPE.MASKED)
            for head in range(kv_head * group, (kv_head + 1) * group):
                for step in tl.range(0, count_of(span, masked == 1), num_stages=SHAPE.STAGES):
                    query_tile = tile_at(step, span, masked == 1)
                    if SHAPE.DILATION <= SHAPE.KEYS or block_sees(memory, head, query_tile * SHAPE.ROWS, first_key, SHAPE):
                        acc_k, acc_v = process_query_block(
                            query_tile, head, acc_k, acc_v, shrink, k_tile, v_tile, key, first_key, inside,
                            memory, cap, SHAPE, GIVEN, DK, DV, masked == 1, REPAIR, CHECKED,
                        )  # fmt: skip
    return acc_k, acc_v


@triton.jit
def as_gradients(acc_k, acc_v, shrink, kept_factor, LIFTED: tl.constexpr):
    acc_k = acc_k * LN2
    if LIFTED:
        acc_k = acc_k / (shrink * F16_FACTOR)
        acc_v = acc_v * (1.0 / F16_FACTOR)
    return acc_k, acc_v * kept_factor


@triton.jit(do_not_specialize=["heads", "kv_heads", "queries", "keys", "dim", "value_dim", "span_batches", "least", "query_offset", "key_offset"])  # fmt: skip
def key_gradient_kernel(
    q, k, v, d_output, terms, bounds, dk, dv, spans, attn_mask, bias, wrong,
    stride_qb, stride_qh, stride_qn, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_gb, stride_gh, stride_gn, stride_gd,
    stride_rb, stride_rh, stride_rn, stride_rd, stride_wb, stride_wh, stride_wn, stride_wd,
    stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
    heads, kv_heads, queries, keys, dim, value_dim, span_batches, cap,
    seed, least, kept_factor, query_offset, key_offset,
    SHAPE: tl.constexpr, GIVEN: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, REPAIR: tl.constexpr,
):  # fmt: skip
    """Program (batch x key head x tile of keys): computes dk, dv or both, summed over the query heads of the key head.
    `wrong` int32 [programs] and REPAIR: as in forward_kernel."""
    if REPAIR:
        if tl.load(wrong + tl.program_id(0)) == 0:
            return
    tile, lane, lanes = program(tl.cdiv(keys, SHAPE.KEYS))
    first_key = tile * SHAPE.KEYS
    key = first_key + tl.arange(0, SHAPE.KEYS)
    inside = key < keys
    batch, kv_head = (lane // kv_heads).to(tl.int64), lane % kv_heads
    group = heads // kv_heads
    wide = key.to(tl.int64)
    to_k, to_v = Strides(stride_kb, stride_kh, stride_kn, stride_kd), Strides(stride_vb, stride_vh, stride_vn, stride_vd)
    k_tile = load_of_head(k, to_k, dim, batch, kv_head, wide, inside, SHAPE.DIM, SHAPE.EVEN)
    v_tile = load_of_head(v, to_v, value_dim, batch, kv_head, wide, inside, SHAPE.COLUMNS, SHAPE.EVEN_COLUMNS)
    memory = memory_of(
        batch, q, d_output, terms, attn_mask, bias,
        stride_qb, stride_qh, stride_qn, stride_qd, stride_gb, stride_gh, stride_gn, stride_gd,
        stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
        heads, queries, dim, value_dim,
        seed, least, kept_factor, query_offset, key_offset, SHAPE,
    )  # fmt: skip

    its_span = (batch % span_batches) * tl.cdiv(keys, SHAPE.KEYS) + tile
    span = load_span(spans, its_span, SHAPE.MASKED)
    shrink = 1.0
    if q.dtype.element_ty == tl.float16:
        shrink = shrink_factor(bounds + batch * heads * queries, span, queries, kv_head, group, SHAPE.ROWS)
    CHECKED: tl.constexpr = wrong is not None and not REPAIR
    acc_k, acc_v = visit_all_queries(
        span, spans, its_span, kv_head, group, shrink, k_tile, v_tile, key, first_key, inside, memory, cap,
        SHAPE, GIVEN, DK, DV, REPAIR, CHECKED,
    )  # fmt: skip
    if CHECKED:
        nothing = nonfinite_flag(acc_k) + nonfinite_flag(acc_v)
        tl.store(wrong + tl.program_id(0), nothing != nothing)
    acc_k, acc_v = as_gradients(acc_k, acc_v, shrink, kept_factor, k_tile.dtype == tl.float16)
    at_k = row_offset(batch, kv_head, stride_rb, stride_rh) + wide * stride_rn
    at_v = row_offset(batch, kv_head, stride_wb, stride_wh) + wide * stride_wn
    if DK:
        store_rows(Matrix(dk, stride_rn, stride_rd, dim), at_k, inside, acc_k, SHAPE.DIM, SHAPE.EVEN)
    if DV:
        store_rows(Matrix(dv, stride_wn, stride_wd, value_dim), at_v, inside, acc_v, SHAPE.COLUMNS, SHAPE.EVEN_COLUMNS)
    if REPAIR:
        acc_k, acc_v = visit_all_wrong_queries(span, kv_head, group, key, inside, memory, SHAPE, GIVEN)
        if DK:
            store_inf(Matrix(dk, stride_rn, stride_rd, dim), at_k, inside, acc_k, SHAPE.DIM, SHAPE.EVEN)
        if DV:
            store_inf(Matrix(dv, stride_wn, stride_wd, value_dim), at_v, inside, acc_v, SHAPE.COLUMNS, SHAPE.EVEN_COLUMNS)
