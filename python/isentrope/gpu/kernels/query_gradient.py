"""Queries against their keys: dq, with the gradients of lambda and of the bias.

Here and in key_gradient each result is summed by the one program that owns it. So there are no atomics, and its bits do
not depend on scheduling. Weights are recomputed from logits and lse.
"""

from __future__ import annotations

import triton
import triton.language as tl

from isentrope.gpu.kernels.block import Cache, load_k, load_v
from isentrope.gpu.kernels.gradient_range import exponent
from isentrope.gpu.kernels.gradient_tile import (
    lifted_terms, load_query_block, memory_of, tile_gradients, tile_weights, with_terms,
)
from isentrope.gpu.kernels.softmax import LN2, apply_masks
from isentrope.gpu.kernels.span import Span, count_of, program_from_the_end, some_sees, span_of_keys, tile_at
from isentrope.gpu.kernels.tile import (
    F16_FACTOR, Matrix, cast, dot, finite_part, full, nonfinite_flag, propagate_nonfinite, store_inf, store_rows, zeros,
)


@triton.jit
def process_key_tile(
    tile, dq, d_lambda, block, unit, cache, cap, d_bias,
    SHAPE: tl.constexpr, GIVEN: tl.constexpr, D_BIAS: tl.constexpr, D_LAMBDA: tl.constexpr, MASKED: tl.constexpr,
    REPAIR: tl.constexpr, CHECKED: tl.constexpr,
):  # fmt: skip
    """Adds the gradient of one tile of keys to a query block.

    unit: scale of lifted gradients. CHECKED: as in forward."""
    first = tile * SHAPE.KEYS
    key = first + tl.arange(0, SHAPE.KEYS)
    inside = (key >= cache.start) & (key < cache.stop)
    k_tile = load_k(first, inside, cache, SHAPE, MASKED, 0)
    v_tile = load_v(first, inside, cache, SHAPE, MASKED, 0)
    nothing = zeros(SHAPE.ROWS, SHAPE.KEYS)
    scores = dot(block.q, tl.trans(k_tile), nothing, SHAPE)
    weights = tile_weights(scores, block, key, first, inside, cap, SHAPE, MASKED, False)
    dp = dot(block.upstream, tl.trans(v_tile), nothing, SHAPE)
    dz, ds = tile_gradients(
        weights, dp, block.terms, block.dropout.factor, key, first, GIVEN.SINK, SHAPE, GIVEN, MASKED and REPAIR,
        CHECKED and not MASKED, False,
    )  # fmt: skip
    if D_BIAS:
        at = d_bias[:, None] + key[None, :]
        tl.store(at, (block.scales.on_bias * unit)[:, None] * LN2 * dz, mask=weights.seen & block.view.rows[:, None])
    if D_LAMBDA:
        product = ds * scores
        if MASKED:
            product = tl.where(weights.seen, product, 0.0)
        d_lambda += tl.sum(product, 1)
    if MASKED and REPAIR:
        k_tile = finite_part(k_tile)
    return dot(cast(ds, k_tile.dtype), k_tile, dq, SHAPE), d_lambda


@triton.jit
def process_nonfinite_keys(tile, dq, block, cache, SHAPE: tl.constexpr):
    """Propagates non-finite keys to dq of the rows that attend to them."""
    first = tile * SHAPE.KEYS
    key = first + tl.arange(0, SHAPE.KEYS)
    inside = (key >= cache.start) & (key < cache.stop)
    k_tile = load_k(first, inside, cache, SHAPE, True, 0)
    nothing = zeros(SHAPE.ROWS, SHAPE.KEYS)
    _, seen = apply_masks(nothing, block.view, block.scales.on_bias, key, inside, SHAPE, False)
    return propagate_nonfinite(seen, k_tile, dq, SHAPE)


@triton.jit
def count_nonfinite_keys(span, block, cache, SHAPE: tl.constexpr):
    """Returns, for each row and column, the number of NaN and Inf among the keys of a span that the row sees."""
    acc = zeros(SHAPE.ROWS, SHAPE.DIM)
    for step in range(0, count_of(span, True)):
        acc = process_nonfinite_keys(tile_at(step, span, True), acc, block, cache, SHAPE)
    return acc


@triton.jit
def visit_all_keys(
    span, block, unit, cache, cap, d_bias,
    SHAPE: tl.constexpr, GIVEN: tl.constexpr, D_BIAS: tl.constexpr, D_LAMBDA: tl.constexpr, REPAIR: tl.constexpr,
    CHECKED: tl.constexpr,
):  # fmt: skip
    """Returns a query block's sums over the keys of a span: dq and d_lambda, both lifted."""
    acc, acc_lambda = zeros(SHAPE.ROWS, SHAPE.DIM), full(SHAPE.ROWS, 0.0, tl.float32)
    view = block.view
    for masked in tl.static_range(2):
        if masked == 1 or not SHAPE.MASKED:
            for step in tl.range(0, count_of(span, masked == 1), num_stages=SHAPE.STAGES):
                tile = tile_at(step, span, masked == 1)
                if SHAPE.DILATION <= SHAPE.KEYS or some_sees(view.rows, view.begin, view.end, tile * SHAPE.KEYS, SHAPE):
                    acc, acc_lambda = process_key_tile(
                        tile, acc, acc_lambda, block, unit, cache, cap, d_bias, SHAPE, GIVEN, D_BIAS, D_LAMBDA, masked == 1, REPAIR, CHECKED,
                    )  # fmt: skip
    return acc, acc_lambda


@triton.jit
def lift_into_range(block, bounds, SHAPE: tl.constexpr, GIVEN: tl.constexpr):
    """Returns the block with its gradients scaled into the range of float16, and the unit of those; 1 in other types.

    bounds: pointers to bounds of the rows' gradients."""
    unit = full(SHAPE.ROWS, 1.0, tl.float32)
    if block.q.dtype == tl.float16:
        most = exponent(tl.load(bounds, mask=block.view.rows, other=0.0))
        block = with_terms(block, lifted_terms(block.terms, -most, GIVEN))
        unit = tl.exp2(most) * (1.0 / F16_FACTOR)
    return block, unit


@triton.jit(do_not_specialize=["heads", "kv_heads", "queries", "keys", "dim", "value_dim", "least", "query_offset", "key_offset"])  # fmt: skip
def query_gradient_kernel(
    q, k, v, d_output, terms, bounds, dq, d_lambda, d_bias, attn_mask, bias, wrong, k_tiles, v_tiles,
    stride_qb, stride_qh, stride_qn, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_gb, stride_gh, stride_gn, stride_gd,
    stride_rb, stride_rh, stride_rn, stride_rd, stride_mb, stride_mh, stride_mq, stride_mk,
    stride_bb, stride_bh, stride_bq, stride_bk,
    heads, kv_heads, queries, keys, dim, value_dim, cap,
    seed, least, kept_factor, query_offset, key_offset,
    SHAPE: tl.constexpr, GIVEN: tl.constexpr, D_BIAS: tl.constexpr, D_LAMBDA: tl.constexpr, REPAIR: tl.constexpr,
):  # fmt: skip
    """Program (batch x head x query block): computes dq, d_lambda f32 [rows], and d_bias f32 [rows, keys] of visible
    keys. `wrong` int32 [programs], REPAIR, k_tiles and v_tiles: as in forward_kernel."""
    if REPAIR:
        if tl.load(wrong + tl.program_id(0)) == 0:
            return
    tile, lane, lanes = program_from_the_end(tl.cdiv(queries, SHAPE.ROWS))
    query = tile * SHAPE.ROWS + tl.arange(0, SHAPE.ROWS)
    batch, head = (lane // heads).to(tl.int64), (lane % heads).to(tl.int64)
    kv_head = head // (heads // kv_heads)
    memory = memory_of(
        batch, q, d_output, terms, attn_mask, bias,
        stride_qb, stride_qh, stride_qn, stride_qd, stride_gb, stride_gh, stride_gn, stride_gd,
        stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
        heads, queries, dim, value_dim,
        seed, least, kept_factor, query_offset, key_offset, SHAPE,
    )  # fmt: skip
    block = load_query_block(memory, head, tile * SHAPE.ROWS, SHAPE, GIVEN, True)
    rows, view = block.view.rows, block.view
    row = lane.to(tl.int64) * queries + query
    block, unit = lift_into_range(block, bounds + row, SHAPE, GIVEN)
    k_rows = Matrix(k + batch * stride_kb + kv_head * stride_kh, stride_kn, stride_kd, dim)
    v_rows = Matrix(v + batch * stride_vb + kv_head * stride_vh, stride_vn, stride_vd, value_dim)
    span = span_of_keys(view, view.end, SHAPE.KEYS)
    if SHAPE.MASKED:
        span = Span(span.first, span.last, span.last, span.last)
    some = view.end > view.begin
    start = tl.min(tl.where(rows & some, view.begin, 2147483647), 0)
    stop = tl.max(tl.where(rows & some, view.end, 0), 0)
    CHECKED: tl.constexpr = wrong is not None and not REPAIR
    if not SHAPE.DESCRIPTORS:
        k_tiles, v_tiles = k, v
    cache = Cache(
        k_rows, v_rows, stride_kb, stride_vb, k, start, stop, k_tiles, v_tiles, batch.to(tl.int32), kv_head.to(tl.int32)
    )  # fmt: skip
    acc, acc_lambda = visit_all_keys(
        span, block, unit, cache, cap, d_bias + row * keys, SHAPE, GIVEN, D_BIAS, D_LAMBDA, REPAIR, CHECKED
    )  # fmt: skip
    if CHECKED:
        nothing = nonfinite_flag(acc)
        tl.store(wrong + tl.program_id(0), nothing != nothing)
    # Rows without keys are included if the block's other rows see everything.
    acc = tl.where(some[:, None], acc * (block.scales.before * unit * LN2)[:, None], 0.0)
    at = batch * stride_rb + head * stride_rh + query.to(tl.int64) * stride_rn
    store_rows(Matrix(dq, stride_rn, stride_rd, dim), at, rows, acc, SHAPE.DIM, SHAPE.EVEN)
    if D_LAMBDA:
        tl.store(d_lambda + row, tl.where(some, acc_lambda * unit, 0.0), mask=rows)
    if REPAIR:
        acc = count_nonfinite_keys(span, block, cache, SHAPE)
        store_inf(Matrix(dq, stride_rn, stride_rd, dim), at, rows, acc, SHAPE.DIM, SHAPE.EVEN)
