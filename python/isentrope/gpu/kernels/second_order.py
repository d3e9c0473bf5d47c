"""The second-order pass: tangents of what the backward pass computes, by the same two visits of tiles."""

from __future__ import annotations

import triton
import triton.language as tl

from isentrope.gpu.kernels.block import Strides, cache_of_block, keys_of, load_k, load_v, nonfinite_numbers, visible_span
from isentrope.gpu.kernels.gradient_rows import base_of, load_floats, load_upstream, statistic
from isentrope.gpu.kernels.gradient_tile import load_query_block, memory_of, tile_weights, visit_heads
from isentrope.gpu.kernels.key_gradient import load_of_head, nonfinite_queries, store_both
from isentrope.gpu.kernels.softmax import LN2
from isentrope.gpu.kernels.span import load_span, program, program_from_the_end, sees_keys, visit_all
from isentrope.gpu.kernels.tangent_tile import directions_of, dot_in_range, load_row_tangents, score_tangents, second_order
from isentrope.gpu.kernels.tile import (
    F16_FACTOR, Matrix, dot, finite_part, flag, full, nonfinite_flag, store_inf, store_rows, zeros,
)


@triton.jit(do_not_specialize=["heads", "queries", "value_dim"])
def second_order_rows_kernel(
    output, d_output, t_output, statistics, d_statistics, t_statistics, sinks, t_sinks, changes, d_sinks,
    stride_ob, stride_oh, stride_on, stride_od, stride_gb, stride_gh, stride_gn, stride_gd, stride_tb, stride_th, stride_tn, stride_td,
    heads, queries, value_dim,
    WANTED: tl.constexpr, UPSTREAM: tl.constexpr, SINK: tl.constexpr, MOVES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Program (batch x head x rows): stores changes f32 [rows, 4] and d_sinks f32 [rows], the tangent of its own. The
    changes are the tangents of lse, of gradient_rows_kernel's base with linear entropy, of entropy, and of ln w."""
    tile, lane, lanes = program(tl.cdiv(queries, ROWS))
    index = tile * ROWS + tl.arange(0, ROWS)
    rows = index < queries
    batch, head = (lane // heads).to(tl.int64), (lane % heads).to(tl.int64)
    row, plane = lane.to(tl.int64) * queries + index, lanes.to(tl.int64) * queries
    out = load_floats(output, stride_ob, stride_oh, stride_on, stride_od, value_dim, batch, head, index, rows, COLUMNS)
    upstream = load_floats(d_output, stride_gb, stride_gh, stride_gn, stride_gd, value_dim, batch, head, index, rows, COLUMNS)
    moved = load_floats(t_output, stride_tb, stride_th, stride_tn, stride_td, value_dim, batch, head, index, rows, COLUMNS)
    mean, product = tl.sum(out * upstream, 1), tl.sum(moved * upstream, 1)
    lse = statistic(statistics, WANTED.LSE, plane, row, rows, True)
    t_lse = statistic(t_statistics, WANTED.LSE, plane, row, rows, True)
    t_entropy = statistic(t_statistics, WANTED.ENTROPY, plane, row, rows, WANTED.ENTROPY >= 0)
    d = load_upstream(d_statistics, plane, row, rows, WANTED, UPSTREAM)
    empty = lse == float("-inf")
    non_sink = mean * 0.0
    if SINK:
        sink, of_sink = tl.load(sinks + head), t_lse
        if MOVES.SINKS:
            of_sink = of_sink - tl.load(t_sinks + head)
        taken, share = 1.0 / (1.0 + tl.exp(lse - sink)), 1.0 / (1.0 + tl.exp(sink - lse))
        non_sink = tl.where(empty, 0.0, taken * of_sink)
        tl.store(d_sinks + row, tl.where(empty, 0.0, share * non_sink * mean - taken * product), mask=rows)
        product = share * (product + non_sink * mean)
    base = base_of(d, t_statistics, plane, row, rows, product + d.lse, WANTED, UPSTREAM) + (2.0 * d.variance - d.entropy) * t_entropy
    to = changes + row * 4
    tl.store(to, tl.where(empty, 0.0, t_lse), mask=rows)
    tl.store(to + 1, tl.where(empty, 0.0, base), mask=rows)
    tl.store(to + 2, t_entropy, mask=rows)
    tl.store(to + 3, non_sink, mask=rows)


@triton.jit
def process_key_tile(
    tile, found, block, tangents, cache, t_cache, cap, d_bias,
    GIVEN: tl.constexpr, MOVES: tl.constexpr, D_BIAS: tl.constexpr, REPAIR: tl.constexpr, SHAPE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Adds one tile of keys to a query block's dq' and d_lambda', and stores d_bias'."""
    acc, acc_lambda = found
    first, key, inside = keys_of(tile, cache, SHAPE)
    k_tile, v_tile = load_k(first, inside, cache, SHAPE, MASKED, 0), load_v(first, inside, cache, SHAPE, MASKED, 0)
    nothing = zeros(SHAPE.ROWS, SHAPE.KEYS)
    scores = dot(block.q, tl.trans(k_tile), nothing, SHAPE)
    weights = tile_weights(scores, block, key, first, inside, cap, SHAPE, MASKED, False)
    t_k, t_dp = k_tile, nothing
    if MOVES.K:
        t_k = load_k(first, inside, t_cache, SHAPE, MASKED, 0)
    if MOVES.V:
        t_dp = dot(block.upstream, tl.trans(load_v(first, inside, t_cache, SHAPE, MASKED, 0)), nothing, SHAPE)
    dp = dot(block.upstream, tl.trans(v_tile), nothing, SHAPE)
    moved = score_tangents(block.q, tangents.q, k_tile, t_k, nothing, SHAPE, MOVES, False)
    own = second_order(
        weights, scores, moved, dp, t_dp, block, tangents, key, first, inside, cap, SHAPE, GIVEN, MOVES, MASKED, False
    )  # fmt: skip
    if D_BIAS:
        scale = block.scales.on_bias * LN2
        if k_tile.dtype == tl.float16:
            scale = scale / F16_FACTOR
        seen = weights.seen & block.view.rows[:, None]
        tl.store(d_bias[:, None] + key[None, :], scale[:, None] * own.of_logits, mask=seen)
    if MASKED and REPAIR:
        k_tile, t_k = finite_part(k_tile), finite_part(t_k)
    acc = dot_in_range(own.of_scores, k_tile, acc, SHAPE)
    if MOVES.K:
        acc = dot_in_range(own.scores, t_k, acc, SHAPE)
    return acc, acc_lambda + tl.sum(own.of_lambda, 1)


@triton.jit(do_not_specialize=["heads", "kv_heads", "queries", "keys", "dim", "value_dim", "least", "query_offset", "key_offset"])  # fmt: skip
def second_order_query_kernel(
    q, k, v, d_output, terms, changes, attn_mask, bias, t_q, t_k, t_v, t_lambda, t_bias, dq, d_lambda, d_bias, wrong,
    stride_qb, stride_qh, stride_qn, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_gb, stride_gh, stride_gn, stride_gd,
    stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
    stride_tqb, stride_tqh, stride_tqn, stride_tqd, stride_tkb, stride_tkh, stride_tkn, stride_tkd,
    stride_tvb, stride_tvh, stride_tvn, stride_tvd, stride_tbb, stride_tbh, stride_tbq, stride_tbk,
    stride_rb, stride_rh, stride_rn, stride_rd,
    heads, kv_heads, queries, keys, dim, value_dim, cap,
    seed, least, kept_factor, query_offset, key_offset,
    SHAPE: tl.constexpr, GIVEN: tl.constexpr, MOVES: tl.constexpr, D_BIAS: tl.constexpr, D_LAMBDA: tl.constexpr, REPAIR: tl.constexpr,
):  # fmt: skip
    """Program (batch x head x query block): computes the tangents of dq, d_lambda f32 [rows] and d_bias f32 [rows, keys]. A prefix
    t_ is a tangent, of arguments that MOVES has. `wrong` int32 [programs], REPAIR: as in forward_kernel."""
    if REPAIR:
        if tl.load(wrong + tl.program_id(0)) == 0:
            return
    tile, lane, _ = program_from_the_end(tl.cdiv(queries, SHAPE.ROWS))
    first = tile * SHAPE.ROWS
    query = first + tl.arange(0, SHAPE.ROWS)
    batch, head = (lane // heads).to(tl.int64), (lane % heads).to(tl.int64)
    kv_head = head // (heads // kv_heads)
    memory = memory_of(
        batch, q, d_output, terms, attn_mask, bias,
        stride_qb, stride_qh, stride_qn, stride_qd, stride_gb, stride_gh, stride_gn, stride_gd,
        stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
        heads, queries, dim, value_dim, seed, least, kept_factor, query_offset, key_offset, SHAPE,
    )  # fmt: skip
    block = load_query_block(memory, head, first, SHAPE, GIVEN, True)
    directions = directions_of(
        batch, t_q, t_lambda, t_bias, changes, stride_tqb, stride_tqh, stride_tqn, stride_tqd,
        stride_tbb, stride_tbh, stride_tbq, stride_tbk, heads, queries, dim,
    )  # fmt: skip
    tangents = load_row_tangents(directions, block, head, first, queries, SHAPE, MOVES, True, True)
    rows, view = block.view.rows, block.view
    some, row = view.end > view.begin, lane.to(tl.int64) * queries + query
    span = visible_span(view, view.end, SHAPE)
    to_k, to_v = Strides(stride_kb, stride_kh, stride_kn, stride_kd), Strides(stride_vb, stride_vh, stride_vn, stride_vd)
    cache = cache_of_block(k, to_k, dim, k, v, to_v, value_dim, v, k, batch, kv_head, view, span.last, SHAPE, 0)
    to_k, to_v = Strides(stride_tkb, stride_tkh, stride_tkn, stride_tkd), Strides(stride_tvb, stride_tvh, stride_tvn, stride_tvd)
    t_cache = cache_of_block(t_k, to_k, dim, t_k, t_v, to_v, value_dim, t_v, t_k, batch, kv_head, view, span.last, SHAPE, 0)
    found = (zeros(SHAPE.ROWS, SHAPE.DIM), full(SHAPE.ROWS, 0.0, tl.float32))
    acc, acc_lambda = visit_all(
        span, sees_keys, (block,), process_key_tile, found,
        (tangents, cache, t_cache, cap, d_bias + row * keys, GIVEN, MOVES, D_BIAS, REPAIR), SHAPE,
    )  # fmt: skip
    if wrong is not None and not REPAIR:
        flag(wrong, nonfinite_flag(acc))
    if block.q.dtype == tl.float16:
        acc, acc_lambda = acc / F16_FACTOR, acc_lambda / F16_FACTOR
    to, at = Matrix(dq, stride_rn, stride_rd, dim), batch * stride_rb + head * stride_rh + query.to(tl.int64) * stride_rn
    store_rows(to, at, rows, tl.where(some[:, None], acc, 0.0), SHAPE.DIM, SHAPE.EVEN)
    if D_LAMBDA:
        tl.store(d_lambda + row, tl.where(some, acc_lambda, 0.0), mask=rows)
    if REPAIR:
        counts = nonfinite_numbers(span, block, cache, t_cache, False, MOVES.K, 0, SHAPE)
        store_inf(to, at, rows, counts, SHAPE.DIM, SHAPE.EVEN)


@triton.jit
def process_query_block(
    tile, found, memory, head, first_key, k_tile, v_tile, t_k, t_v, key, inside, directions, cap,
    GIVEN: tl.constexpr, MOVES: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, REPAIR: tl.constexpr,
    SHAPE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Adds one query block to a tile of keys' dk' and dv'."""
    dk, dv = found
    first = tile * SHAPE.ROWS
    block = load_query_block(memory, head, first, SHAPE, GIVEN, MASKED)
    tangents = load_row_tangents(directions, block, head, first, memory.queries, SHAPE, MOVES, True, MASKED)
    q, t_q, upstream, nothing = block.q, tangents.q, block.upstream, zeros(SHAPE.KEYS, SHAPE.ROWS)
    scores = dot(k_tile, tl.trans(q), nothing, SHAPE)
    weights = tile_weights(scores, block, key, first_key, inside, cap, SHAPE, MASKED, True)
    moved = score_tangents(q, t_q, k_tile, t_k, nothing, SHAPE, MOVES, True)
    dp, t_dp = nothing, nothing
    if DK:
        dp = dot(v_tile, tl.trans(upstream), nothing, SHAPE)
        if MOVES.V:
            t_dp = dot(t_v, tl.trans(upstream), nothing, SHAPE)
    own = second_order(
        weights, scores, moved, dp, t_dp, block, tangents, key, first_key, inside, cap, SHAPE, GIVEN, MOVES, MASKED, True
    )  # fmt: skip
    if MASKED and REPAIR:
        q, t_q, upstream = finite_part(q), finite_part(t_q), finite_part(upstream)
    if DV:
        dv = dot_in_range(own.of_values, upstream, dv, SHAPE)
    if DK:
        dk = dot_in_range(own.of_scores, q, dk, SHAPE)
        if MOVES.Q:
            dk = dot_in_range(own.scores, t_q, dk, SHAPE)
    return dk, dv


@triton.jit(do_not_specialize=["heads", "kv_heads", "queries", "keys", "dim", "value_dim", "span_batches", "least", "query_offset", "key_offset"])  # fmt: skip
def second_order_key_kernel(
    q, k, v, d_output, terms, changes, attn_mask, bias, t_q, t_k, t_v, t_lambda, t_bias, dk, dv, spans, wrong,
    stride_qb, stride_qh, stride_qn, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_gb, stride_gh, stride_gn, stride_gd,
    stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
    stride_tqb, stride_tqh, stride_tqn, stride_tqd, stride_tkb, stride_tkh, stride_tkn, stride_tkd,
    stride_tvb, stride_tvh, stride_tvn, stride_tvd, stride_tbb, stride_tbh, stride_tbq, stride_tbk,
    stride_rb, stride_rh, stride_rn, stride_rd, stride_wb, stride_wh, stride_wn, stride_wd,
    heads, kv_heads, queries, keys, dim, value_dim, span_batches, cap,
    seed, least, kept_factor, query_offset, key_offset,
    SHAPE: tl.constexpr, GIVEN: tl.constexpr, MOVES: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, REPAIR: tl.constexpr,
):  # fmt: skip
    """Program (batch x key head x tile of keys): computes the tangents of dk or dv, of all query heads of the key head. A prefix t_
    is a tangent, of arguments that MOVES has. `wrong` int32 [programs], REPAIR: as in forward_kernel."""
    if REPAIR:
        if tl.load(wrong + tl.program_id(0)) == 0:
            return
    tile, lane, _ = program(tl.cdiv(keys, SHAPE.KEYS))
    first_key = tile * SHAPE.KEYS
    key = first_key + tl.arange(0, SHAPE.KEYS)
    inside, wide = key < keys, key.to(tl.int64)
    batch, kv_head = (lane // kv_heads).to(tl.int64), lane % kv_heads
    group = heads // kv_heads
    to_k, to_v = Strides(stride_kb, stride_kh, stride_kn, stride_kd), Strides(stride_vb, stride_vh, stride_vn, stride_vd)
    k_tile = load_of_head(k, to_k, dim, batch, kv_head, wide, inside, SHAPE.DIM, SHAPE.EVEN)
    v_tile = load_of_head(v, to_v, value_dim, batch, kv_head, wide, inside, SHAPE.COLUMNS, SHAPE.EVEN_COLUMNS)
    t_k_tile, t_v_tile = k_tile, v_tile
    if MOVES.K:
        to_k = Strides(stride_tkb, stride_tkh, stride_tkn, stride_tkd)
        t_k_tile = load_of_head(t_k, to_k, dim, batch, kv_head, wide, inside, SHAPE.DIM, SHAPE.EVEN)
    if MOVES.V:
        to_v = Strides(stride_tvb, stride_tvh, stride_tvn, stride_tvd)
        t_v_tile = load_of_head(t_v, to_v, value_dim, batch, kv_head, wide, inside, SHAPE.COLUMNS, SHAPE.EVEN_COLUMNS)
    memory = memory_of(
        batch, q, d_output, terms, attn_mask, bias,
        stride_qb, stride_qh, stride_qn, stride_qd, stride_gb, stride_gh, stride_gn, stride_gd,
        stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
        heads, queries, dim, value_dim, seed, least, kept_factor, query_offset, key_offset, SHAPE,
    )  # fmt: skip
    directions = directions_of(
        batch, t_q, t_lambda, t_bias, changes, stride_tqb, stride_tqh, stride_tqn, stride_tqd,
        stride_tbb, stride_tbh, stride_tbq, stride_tbk, heads, queries, dim,
    )  # fmt: skip
    span = load_span(spans, (batch % span_batches) * tl.cdiv(keys, SHAPE.KEYS) + tile, SHAPE.MASKED)
    found = (zeros(SHAPE.KEYS, SHAPE.DIM), zeros(SHAPE.KEYS, SHAPE.COLUMNS))
    for masked in tl.static_range(2):
        if masked == 1 or not SHAPE.MASKED:
            found = visit_heads(
                span, kv_head, group, memory, first_key, process_query_block, found,
                (k_tile, v_tile, t_k_tile, t_v_tile, key, inside, directions, cap, GIVEN, MOVES, DK, DV, REPAIR),
                SHAPE, SHAPE.STAGES, masked == 1,
            )  # fmt: skip
    acc_k, acc_v = found
    if wrong is not None and not REPAIR:
        flag(wrong, nonfinite_flag(acc_k) + nonfinite_flag(acc_v))
    if k_tile.dtype == tl.float16:
        acc_k, acc_v = acc_k / F16_FACTOR, acc_v / F16_FACTOR
    acc_v = acc_v * kept_factor
    to_dk, to_dv = Strides(stride_rb, stride_rh, stride_rn, stride_rd), Strides(stride_wb, stride_wh, stride_wn, stride_wd)
    store_both(store_rows, acc_k, acc_v, dk, to_dk, dim, dv, to_dv, value_dim, batch, kv_head, wide, inside, SHAPE, DK, DV)
    if REPAIR:
        acc_k, acc_v = nonfinite_queries(
            span, kv_head, group, memory, first_key, key, inside, directions, SHAPE, GIVEN, MOVES.Q, MOVES
        )  # fmt: skip
        store_both(store_inf, acc_k, acc_v, dk, to_dk, dim, dv, to_dv, value_dim, batch, kv_head, wide, inside, SHAPE, DK, DV)
