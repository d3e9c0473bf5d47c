"""Keys against the queries that see them: dk and dv, in one launch or in two. Tiles are transposed, [keys, queries]."""

from __future__ import annotations

import triton
import triton.language as tl

from isentrope.gpu.kernels.block import Strides
from isentrope.gpu.kernels.gradient_range import exponent, largest_bound
from isentrope.gpu.kernels.gradient_tile import (
    load_query_block, memory_of, scaled_terms, tile_gradients, tile_weights, value_weights, visit_heads,
)
from isentrope.gpu.kernels.softmax import LN2, apply_masks
from isentrope.gpu.kernels.span import load_span, program
from isentrope.gpu.kernels.tangent_tile import load_row_tangents
from isentrope.gpu.kernels.tile import (
    F16_FACTOR, Matrix, cast, dot, finite_part, flag, load_rows, nonfinite_flag, propagate_nonfinite, store_inf, store_rows, zeros,
)  # fmt: skip


@triton.jit
def process_query_block(
    tile, found, memory, head, first_key, shrink, k_tile, v_tile, key, inside, cap,
    GIVEN: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, REPAIR: tl.constexpr, CHECKED: tl.constexpr,
    SHAPE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Adds the gradient of one query block to a key block, times `shrink` relative to the lift of its rows.
    CHECKED: as in forward."""
    dk, dv = found
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
def count_nonfinite(
    tile, found, memory, head, first_key, key, inside, directions, GIVEN: tl.constexpr, MOVED: tl.constexpr, MOVES: tl.constexpr,
    SHAPE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Adds the numbers of NaN and Inf in queries, if MOVED in their tangents, and in upstream gradients of rows that see a key."""
    acc_k, acc_v = found
    first = tile * SHAPE.ROWS
    block = load_query_block(memory, head, first, SHAPE, GIVEN, MASKED)
    _, seen = apply_masks(zeros(SHAPE.KEYS, SHAPE.ROWS), block.view, block.scales.on_bias, key, inside, SHAPE, True)
    acc_k = propagate_nonfinite(seen, block.q, acc_k, SHAPE)
    if MOVED:
        tangents = load_row_tangents(directions, block, head, first, memory.queries, SHAPE, MOVES, False, MASKED)
        acc_k = propagate_nonfinite(seen, tangents.q, acc_k, SHAPE)
    return acc_k, propagate_nonfinite(seen, block.upstream, acc_v, SHAPE)


@triton.jit
def nonfinite_queries(
    span, kv_head, group, memory, first_key, key, inside, directions,
    SHAPE: tl.constexpr, GIVEN: tl.constexpr, MOVED: tl.constexpr, MOVES: tl.constexpr,
):  # fmt: skip
    """Returns the numbers of `count_nonfinite` of all query heads that read a tile of keys."""
    found = (zeros(SHAPE.KEYS, SHAPE.DIM), zeros(SHAPE.KEYS, SHAPE.COLUMNS))
    return visit_heads(
        span, kv_head, group, memory, first_key, count_nonfinite, found, (key, inside, directions, GIVEN, MOVED, MOVES), SHAPE, None, True
    )  # fmt: skip


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
def store_both(
    store: tl.constexpr, acc_k, acc_v, dk, to_dk, dim, dv, to_dv, value_dim, batch, kv_head, key, inside,
    SHAPE: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """Stores both gradients of a tile of keys, or those that are wanted, by store_rows or store_inf."""
    if DK:
        at = row_offset(batch, kv_head, to_dk.batch, to_dk.head) + key * to_dk.row
        store(Matrix(dk, to_dk.row, to_dk.column, dim), at, inside, acc_k, SHAPE.DIM, SHAPE.EVEN)
    if DV:
        at = row_offset(batch, kv_head, to_dv.batch, to_dv.head) + key * to_dv.row
        store(Matrix(dv, to_dv.row, to_dv.column, value_dim), at, inside, acc_v, SHAPE.COLUMNS, SHAPE.EVEN_COLUMNS)


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
    found = (zeros(SHAPE.KEYS, SHAPE.DIM), zeros(SHAPE.KEYS, SHAPE.COLUMNS))
    for masked in tl.static_range(2):
        if masked == 1 or not SHAPE.MASKED:
            if k_tile.dtype == tl.float16:
                # Loaded again, because keeping it across the loop spilled 8 bytes with the lift.
                span = load_span(spans, its_span, SHAPE.MASKED)
            found = visit_heads(
                span, kv_head, group, memory, first_key, process_query_block, found,
                (shrink, k_tile, v_tile, key, inside, cap, GIVEN, DK, DV, REPAIR, CHECKED),
                SHAPE, SHAPE.STAGES, masked == 1,
            )  # fmt: skip
    acc_k, acc_v = found
    if CHECKED:
        flag(wrong, nonfinite_flag(acc_k) + nonfinite_flag(acc_v))
    acc_k, acc_v = as_gradients(acc_k, acc_v, shrink, kept_factor, k_tile.dtype == tl.float16)
    to_dk, to_dv = Strides(stride_rb, stride_rh, stride_rn, stride_rd), Strides(stride_wb, stride_wh, stride_wn, stride_wd)
    store_both(store_rows, acc_k, acc_v, dk, to_dk, dim, dv, to_dv, value_dim, batch, kv_head, wide, inside, SHAPE, DK, DV)
    if REPAIR:
        acc_k, acc_v = nonfinite_queries(
            span, kv_head, group, memory, first_key, key, inside, memory, SHAPE, GIVEN, False, False
        )  # fmt: skip
        store_both(store_inf, acc_k, acc_v, dk, to_dk, dim, dv, to_dv, value_dim, batch, kv_head, wide, inside, SHAPE, DK, DV)
