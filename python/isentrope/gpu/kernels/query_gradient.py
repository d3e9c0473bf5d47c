"""Queries against their keys: dq, with the gradients of lambda and of the bias.

Here and in key_gradient each result is summed by the one program that owns it, so there are no atomics, and its bits do
not depend on scheduling. Weights are recomputed from logits and lse.
"""

from __future__ import annotations

import triton
import triton.language as tl

from isentrope.gpu.kernels.gradient_tile import lifted, load_query_block, memory_of, tile_gradients
from isentrope.gpu.kernels.softmax import LN2, apply_masks
from isentrope.gpu.kernels.span import Span, count_of, program, span_of_keys, tile_at
from isentrope.gpu.kernels.tile import F16_LIFT, Matrix, dot, each, finite_part, load_rows, reach, store_rows, zeros


@triton.jit
def visit_keys(
    start, dq, unit, d_lambda, wrong, block, k, v, stop, cap, d_bias,
    SHAPE: tl.constexpr, GIVEN: tl.constexpr, D_BIAS: tl.constexpr, D_LAMBDA: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """A query block takes up the gradient of one tile of keys."""
    key = start + tl.arange(0, SHAPE.KEYS)
    inside = key < stop
    named = tl.where(inside, key, 0).to(tl.int64)
    k_tile = load_rows(k, named * k.to_row, inside, SHAPE.DIM, MASKED, SHAPE.EVEN)
    v_tile = load_rows(v, named * v.to_row, inside, SHAPE.COLUMNS, MASKED, SHAPE.EVEN_COLUMNS)
    nothing = zeros(SHAPE.ROWS, SHAPE.KEYS)
    scores = dot(block.q, tl.trans(k_tile), nothing, SHAPE)
    dp = dot(block.upstream, tl.trans(v_tile), nothing, SHAPE)
    _, dz, ds, seen = tile_gradients(scores, dp, block, key, start, inside, cap, SHAPE, GIVEN, MASKED, False)
    if D_BIAS:
        at = d_bias[:, None] + key[None, :]
        tl.store(at, block.scales.on_bias[:, None] * LN2 * dz, mask=seen & block.view.rows[:, None])
    if D_LAMBDA:
        product = ds * scores
        if MASKED:
            product = tl.where(seen, product, 0.0)
        d_lambda += tl.sum(product, 1)
    ds, unit, rescale = lifted(ds, unit, k_tile.dtype)
    if k_tile.dtype == tl.float16:
        dq = dq * rescale[:, None]
    k_tile, wrong = finite_part(k_tile, wrong, MASKED)
    return dot(ds, k_tile, dq, SHAPE), unit, d_lambda, wrong


@triton.jit
def visit_wrong_keys(start, dq, block, k, stop, SHAPE: tl.constexpr):
    """The keys of a tile that are no numbers reach the gradients of the queries that see them."""
    key = start + tl.arange(0, SHAPE.KEYS)
    inside = key < stop
    k_tile = load_rows(k, tl.where(inside, key, 0).to(tl.int64) * k.to_row, inside, SHAPE.DIM, True, SHAPE.EVEN)
    nothing = zeros(SHAPE.ROWS, SHAPE.KEYS)
    _, seen = apply_masks(nothing, block.view, block.scales.on_bias, key, inside, SHAPE, False)
    return reach(seen, k_tile, dq, SHAPE)


@triton.jit(do_not_specialize=["heads", "kv_heads", "queries", "keys", "dim", "value_dim", "scale_batches",
                               "scale_heads", "least", "query_offset", "key_offset"])  # fmt: skip
def query_gradient_kernel(
    q, k, v, d_output, terms, dq, d_lambda, d_bias, begins, ends, scales, attn_mask, bias,
    stride_qb, stride_qh, stride_qn, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_gb, stride_gh, stride_gn, stride_gd,
    stride_rb, stride_rh, stride_rn, stride_rd, stride_mb, stride_mh, stride_mq, stride_mk,
    stride_bb, stride_bh, stride_bq, stride_bk,
    heads, kv_heads, queries, keys, dim, value_dim, scale_batches, scale_heads, cap,
    seed, least, kept_factor, query_offset, key_offset,
    SHAPE: tl.constexpr, GIVEN: tl.constexpr, D_BIAS: tl.constexpr, D_LAMBDA: tl.constexpr,
):  # fmt: skip
    """Program (batch x head x query block): dq, d_lambda f32 [rows], and of seen keys d_bias f32 [rows, keys]."""
    tile, lane, lanes = program(tl.cdiv(queries, SHAPE.ROWS))
    query = tile * SHAPE.ROWS + tl.arange(0, SHAPE.ROWS)
    batch, head = (lane // heads).to(tl.int64), (lane % heads).to(tl.int64)
    kv_head = head // (heads // kv_heads)
    memory = memory_of(
        batch, q, d_output, terms, scales, begins, ends, attn_mask, bias,
        stride_qb, stride_qh, stride_qn, stride_qd, stride_gb, stride_gh, stride_gn, stride_gd,
        stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
        lanes // heads, heads, queries, dim, value_dim, scale_batches, scale_heads,
        seed, least, kept_factor, query_offset, key_offset, SHAPE,
    )  # fmt: skip
    block = load_query_block(memory, head, query, SHAPE, GIVEN, True)
    rows, view = block.view.rows, block.view
    k_rows = Matrix(k + batch * stride_kb + kv_head * stride_kh, stride_kn, stride_kd, dim)
    v_rows = Matrix(v + batch * stride_vb + kv_head * stride_vh, stride_vn, stride_vd, value_dim)
    row = lane.to(tl.int64) * queries + query
    its_bias = d_bias + row * keys

    acc = zeros(SHAPE.ROWS, SHAPE.DIM)
    unit = each(SHAPE.ROWS, 1e-30, tl.float32)
    acc_lambda = each(SHAPE.ROWS, 0.0, tl.float32)
    wrong = each(SHAPE.KEYS, 0, tl.int32)
    span = span_of_keys(view, SHAPE.KEYS)
    if SHAPE.MASKED:
        span = Span(span.first, span.last, span.last, span.last)
    stop = tl.max(tl.where(rows, view.end, 0), 0)
    for masked in tl.static_range(2):
        if masked == 1 or not SHAPE.MASKED:
            for step in tl.range(0, count_of(span, masked == 1), num_stages=SHAPE.STAGES):
                acc, unit, acc_lambda, wrong = visit_keys(
                    tile_at(step, span, masked == 1) * SHAPE.KEYS, acc, unit, acc_lambda, wrong, block, k_rows, v_rows,
                    stop, cap, its_bias, SHAPE, GIVEN, D_BIAS, D_LAMBDA, masked == 1,
                )  # fmt: skip
    if tl.max(wrong, 0) > 0:
        for step in range(0, count_of(span, True)):
            acc = visit_wrong_keys(tile_at(step, span, True) * SHAPE.KEYS, acc, block, k_rows, stop, SHAPE)
    # Rows without keys went along where the block's others see everything.
    some = view.end > view.begin
    if dq.dtype.element_ty == tl.float16:
        acc = acc * (unit * (1.0 / F16_LIFT))[:, None]
    acc = tl.where(some[:, None], acc * (block.scales.before * LN2)[:, None], 0.0)
    at = batch * stride_rb + head * stride_rh + query.to(tl.int64) * stride_rn
    store_rows(Matrix(dq, stride_rn, stride_rd, dim), at, rows, acc, SHAPE.DIM, SHAPE.EVEN)
    if D_LAMBDA:
        tl.store(d_lambda + row, tl.where(some, acc_lambda, 0.0), mask=rows)
