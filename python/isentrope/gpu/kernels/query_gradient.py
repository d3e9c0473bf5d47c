"""Queries against their keys: dq, with the gradients of lambda and of the bias.

Here and in key_gradient each result is summed by the one program that owns it. So there are no atomics, and its bits do
not depend on scheduling. Weights are recomputed from logits and lse.
"""

from __future__ import annotations

import triton
import triton.language as tl

from isentrope.gpu.kernels.block import Strides, cache_of_block, keys_of, load_k, load_v, nonfinite_numbers, visible_span
from isentrope.gpu.kernels.gradient_range import exponent
from isentrope.gpu.kernels.gradient_tile import (
    lifted_terms, load_query_block, memory_of, tile_gradients, tile_weights, with_terms,
)
from isentrope.gpu.kernels.softmax import LN2
from isentrope.gpu.kernels.span import program_from_the_end, sees_keys, visit_all
from isentrope.gpu.kernels.tile import (
    F16_FACTOR, Matrix, cast, dot, finite_part, flag, full, nonfinite_flag, store_inf, store_rows, zeros,
)


@triton.jit
def process_key_tile(
    tile, found, block, unit, cache, cap, d_bias, GIVEN: tl.constexpr, D_BIAS: tl.constexpr, D_LAMBDA: tl.constexpr,
    REPAIR: tl.constexpr, CHECKED: tl.constexpr, SHAPE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Adds the gradient of one tile of keys to a query block's dq and d_lambda.

    unit: scale of lifted gradients. CHECKED: as in forward."""
    dq, d_lambda = found
    first, key, inside = keys_of(tile, cache, SHAPE)
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
    span = visible_span(view, view.end, SHAPE)
    to_k, to_v = Strides(stride_kb, stride_kh, stride_kn, stride_kd), Strides(stride_vb, stride_vh, stride_vn, stride_vd)
    cache = cache_of_block(k, to_k, dim, k_tiles, v, to_v, value_dim, v_tiles, k, batch, kv_head, view, span.last, SHAPE, 0)
    CHECKED: tl.constexpr = wrong is not None and not REPAIR
    found = (zeros(SHAPE.ROWS, SHAPE.DIM), full(SHAPE.ROWS, 0.0, tl.float32))
    acc, acc_lambda = visit_all(
        span, sees_keys, (block,), process_key_tile, found,
        (unit, cache, cap, d_bias + row * keys, GIVEN, D_BIAS, D_LAMBDA, REPAIR, CHECKED), SHAPE,
    )  # fmt: skip
    if CHECKED:
        flag(wrong, nonfinite_flag(acc))
    some = view.end > view.begin
    # Rows without keys are included if the block's other rows see everything.
    acc = tl.where(some[:, None], acc * (block.scales.before * unit * LN2)[:, None], 0.0)
    at = batch * stride_rb + head * stride_rh + query.to(tl.int64) * stride_rn
    store_rows(Matrix(dq, stride_rn, stride_rd, dim), at, rows, acc, SHAPE.DIM, SHAPE.EVEN)
    if D_LAMBDA:
        tl.store(d_lambda + row, tl.where(some, acc_lambda * unit, 0.0), mask=rows)
    if REPAIR:
        acc = nonfinite_numbers(span, block, cache, cache, False, False, 0, SHAPE)
        store_inf(Matrix(dq, stride_rn, stride_rd, dim), at, rows, acc, SHAPE.DIM, SHAPE.EVEN)
