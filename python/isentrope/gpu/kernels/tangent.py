"""The tangent pass: a query block against all keys that it sees, with the weights that the forward pass's lse gives."""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from isentrope.gpu.kernels.block import Strides, cache_of_block, keys_of, load_k, load_v, nonfinite_numbers, visible_span
from isentrope.gpu.kernels.gradient_rows import statistic
from isentrope.gpu.kernels.gradient_tile import load_query_block, memory_of, of_head, tile_weights
from isentrope.gpu.kernels.softmax import LEAST, LN2, LOG2E, distances
from isentrope.gpu.kernels.span import program_from_the_end, sees_keys, visit_all
from isentrope.gpu.kernels.tangent_tile import directions_of, dot_in_range, load_row_tangents, logit_tangents, score_tangents
from isentrope.gpu.kernels.tile import (
    F16_FACTOR, F16_LIFT, Matrix, advance, dot, finite_part, flag, full, load_tile, nonfinite_flag, store_inf, store_rows, zeros,
)  # fmt: skip


class Results(NamedTuple):
    """Entropy in log2 and distance of rows, from the forward pass."""

    entropy: tl.tensor
    distance: tl.tensor


class Sums(NamedTuple):
    """Sums of rows, with u = ln p_j + entropy in log2: of p z', the same times u, u^2, p and |i - j| - distance; and z' of the
    largest key."""

    mean: tl.tensor
    by_u: tl.tensor
    by_square: tl.tensor
    by_weight: tl.tensor
    by_distance: tl.tensor
    of_largest: tl.tensor


@triton.jit
def add_changes(sums, weights, z, change, terms, results, key, first, GIVEN: tl.constexpr):
    """Adds a tile of changes = p z'."""
    mean, by_u, by_square, by_weight, by_distance, of_largest = sums
    mean += tl.sum(change, 1)
    if GIVEN.LINEAR:
        u = tl.maximum(weights.t, LEAST) + results.entropy[:, None]
        by_u += tl.sum(change * u, 1)
        if GIVEN.QUADRATIC:
            by_square += tl.sum(change * u * u, 1)
    if GIVEN.COLLISION:
        by_weight += tl.sum(change * weights.p, 1)
    if GIVEN.DISTANCE:
        by_distance += tl.sum(change * (distances(terms.own_key, key, first, False) - results.distance[:, None]), 1)
    if GIVEN.LARGEST_KEY:
        of_largest += tl.sum(tl.where(terms.largest_key[:, None] == key[None, :], z, 0.0), 1)
    return Sums(mean, by_u, by_square, by_weight, by_distance, of_largest)


@triton.jit
def process_key_tile(
    tile, found, block, tangents, results, cache, t_cache, cap,
    GIVEN: tl.constexpr, MOVES: tl.constexpr, REPAIR: tl.constexpr, SHAPE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Adds one tile of keys to a query block's tangent of the output and to its Sums."""
    acc, sums = found
    first, key, inside = keys_of(tile, cache, SHAPE)
    k_tile, v_tile = load_k(first, inside, cache, SHAPE, MASKED, 0), load_v(first, inside, cache, SHAPE, MASKED, 0)
    t_k, t_v = k_tile, v_tile
    if MOVES.K:
        t_k = load_k(first, inside, t_cache, SHAPE, MASKED, 0)
    if MOVES.V:
        t_v = load_v(first, inside, t_cache, SHAPE, MASKED, 0)
    nothing = zeros(SHAPE.ROWS, SHAPE.KEYS)
    scores = dot(block.q, tl.trans(k_tile), nothing, SHAPE)
    weights = tile_weights(scores, block, key, first, inside, cap, SHAPE, MASKED, False)
    moved = score_tangents(block.q, tangents.q, k_tile, t_k, nothing, SHAPE, MOVES, False)
    _, z = logit_tangents(scores, moved, weights, block, tangents, key, inside, SHAPE, MOVES, MASKED, False)
    p, change = weights.p, weights.p * z
    sums = add_changes(sums, weights, z, change, block.terms, results, key, first, GIVEN)
    if SHAPE.DROPOUT:
        p, change = tl.where(weights.kept, p, 0.0), tl.where(weights.kept, change, 0.0)
    if MASKED and REPAIR:
        v_tile, t_v = finite_part(v_tile), finite_part(t_v)
    acc = dot_in_range(change, v_tile, acc, SHAPE)
    if MOVES.V:
        acc = dot_in_range(p, t_v, acc, SHAPE)
    return acc, sums


@triton.jit
def store_tangent(to, place, plane, row, rows, some, lse, x):
    """Stores the tangent of a statistic: 0 for rows without keys, NaN where that of lse is."""
    tl.store(to + place * plane + row, tl.where(some, tl.where(lse == lse, x, lse), 0.0), mask=rows)


@triton.jit
def store_statistics(to, sums, statistics, plane, row, rows, some, WANTED: tl.constexpr):
    lse = sums.mean
    store_tangent(to, WANTED.LSE, plane, row, rows, some, lse, lse)
    if WANTED.ENTROPY >= 0:
        store_tangent(to, WANTED.ENTROPY, plane, row, rows, some, lse, -sums.by_u * LN2)
    if WANTED.COLLISION >= 0:
        collision = statistic(statistics, WANTED.COLLISION, plane, row, rows, True)
        store_tangent(to, WANTED.COLLISION, plane, row, rows, some, lse, 2.0 * (sums.by_weight - collision * lse))
    if WANTED.VARIANCE >= 0:
        variance = statistic(statistics, WANTED.VARIANCE, plane, row, rows, True)
        of_moments = sums.by_square * (LN2 * LN2) + sums.by_u * (2 * LN2)
        store_tangent(to, WANTED.VARIANCE, plane, row, rows, some, lse, of_moments - variance * lse)
    if WANTED.DISTANCE >= 0:
        store_tangent(to, WANTED.DISTANCE, plane, row, rows, some, lse, sums.by_distance)
    if WANTED.MAX_PROBABILITY >= 0:
        most = statistic(statistics, WANTED.MAX_PROBABILITY, plane, row, rows, True)
        store_tangent(to, WANTED.MAX_PROBABILITY, plane, row, rows, some, lse, most * (sums.of_largest - lse))


@triton.jit
def without_lift(sums, FACTOR: tl.constexpr):
    return Sums(
        sums.mean / FACTOR, sums.by_u / FACTOR, sums.by_square / FACTOR, sums.by_weight / (FACTOR * FACTOR), sums.by_distance / FACTOR,
        sums.of_largest,
    )  # fmt: skip


@triton.jit(do_not_specialize=["heads", "kv_heads", "queries", "keys", "dim", "value_dim", "least", "query_offset", "key_offset"])  # fmt: skip
def tangent_kernel(
    q, k, v, output, terms, statistics, attn_mask, bias, sinks, t_q, t_k, t_v, t_lambda, t_bias, t_sinks, t_output, t_statistics, wrong,
    stride_qb, stride_qh, stride_qn, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_on, stride_od,
    stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
    stride_tqb, stride_tqh, stride_tqn, stride_tqd, stride_tkb, stride_tkh, stride_tkn, stride_tkd,
    stride_tvb, stride_tvh, stride_tvn, stride_tvd, stride_tbb, stride_tbh, stride_tbq, stride_tbk,
    stride_rb, stride_rh, stride_rn, stride_rd,
    heads, kv_heads, queries, keys, dim, value_dim, cap,
    seed, least, kept_factor, query_offset, key_offset,
    SHAPE: tl.constexpr, GIVEN: tl.constexpr, MOVES: tl.constexpr, WANTED: tl.constexpr, REPAIR: tl.constexpr,
):  # fmt: skip
    """Program (batch x head x query block): computes the tangents of output and statistics. A prefix t_ is a tangent, of
    arguments that MOVES has. `wrong` int32 [programs], REPAIR: as in forward_kernel."""
    if REPAIR:
        if tl.load(wrong + tl.program_id(0)) == 0:
            return
    tile, lane, lanes = program_from_the_end(tl.cdiv(queries, SHAPE.ROWS))
    first = tile * SHAPE.ROWS
    query = first + tl.arange(0, SHAPE.ROWS)
    batch, head = (lane // heads).to(tl.int64), (lane % heads).to(tl.int64)
    kv_head = head // (heads // kv_heads)
    memory = memory_of(
        batch, q, output, terms, attn_mask, bias,
        stride_qb, stride_qh, stride_qn, stride_qd, stride_ob, stride_oh, stride_on, stride_od,
        stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
        heads, queries, dim, value_dim, seed, least, kept_factor, query_offset, key_offset, SHAPE,
    )  # fmt: skip
    block = load_query_block(memory, head, first, SHAPE, GIVEN, True)
    directions = directions_of(
        batch, t_q, t_lambda, t_bias, terms, stride_tqb, stride_tqh, stride_tqn, stride_tqd,
        stride_tbb, stride_tbh, stride_tbq, stride_tbk, heads, queries, dim,
    )  # fmt: skip
    tangents = load_row_tangents(directions, block, head, first, queries, SHAPE, MOVES, False, True)
    rows, view = block.view.rows, block.view
    some = view.end > view.begin
    row, plane = lane.to(tl.int64) * queries + query, lanes.to(tl.int64) * queries
    LIFTED: tl.constexpr = block.q.dtype == tl.float16
    lift: tl.constexpr = F16_LIFT if LIFTED else 0.0
    results = Results(
        statistic(statistics, WANTED.ENTROPY, plane, row, rows, WANTED.ENTROPY >= 0) * LOG2E - lift,
        statistic(statistics, WANTED.DISTANCE, plane, row, rows, WANTED.DISTANCE >= 0),
    )  # fmt: skip
    span = visible_span(view, view.end, SHAPE)
    to_k, to_v = Strides(stride_kb, stride_kh, stride_kn, stride_kd), Strides(stride_vb, stride_vh, stride_vn, stride_vd)
    cache = cache_of_block(k, to_k, dim, k, v, to_v, value_dim, v, k, batch, kv_head, view, span.last, SHAPE, 0)
    to_k, to_v = Strides(stride_tkb, stride_tkh, stride_tkn, stride_tkd), Strides(stride_tvb, stride_tvh, stride_tvn, stride_tvd)
    t_cache = cache_of_block(t_k, to_k, dim, t_k, t_v, to_v, value_dim, t_v, t_k, batch, kv_head, view, span.last, SHAPE, 0)
    none = full(SHAPE.ROWS, 0.0, tl.float32)
    found = (zeros(SHAPE.ROWS, SHAPE.COLUMNS), Sums(none, none, none, none, none, none))
    acc, sums = visit_all(
        span, sees_keys, (block,), process_key_tile, found, (tangents, results, cache, t_cache, cap, GIVEN, MOVES, REPAIR), SHAPE
    )  # fmt: skip
    if wrong is not None and not REPAIR:
        flag(wrong, nonfinite_flag(acc))
    if LIFTED:
        acc, sums = acc / F16_FACTOR, without_lift(sums, F16_FACTOR)
    # o' = w sum p (v' + z' v) - (lse' - (ln w)') o, with (ln w)' = r (lse' - sink') and r the sink's weight.
    shift, factor = sums.mean, full(SHAPE.ROWS, 1.0, tl.float32) * kept_factor
    if GIVEN.SINK:
        sink, lse = tl.load(sinks + head), statistic(statistics, WANTED.LSE, plane, row, rows, True)
        of_sink = sums.mean
        if MOVES.SINKS:
            of_sink = of_sink - tl.load(t_sinks + head)
        shift = shift - of_sink / (1.0 + tl.exp(lse - sink))
        factor = factor * block.terms.share
    here = advance(of_head(memory.upstream, head, memory.upstream_to_head), first)
    out = load_tile(here, rows, SHAPE.ROWS, SHAPE.COLUMNS, True, SHAPE.EVEN_COLUMNS).to(tl.float32)
    acc = tl.where(some[:, None], acc * factor[:, None] - shift[:, None] * out, 0.0)
    to = Matrix(t_output, stride_rn, stride_rd, value_dim)
    at = batch * stride_rb + head * stride_rh + query.to(tl.int64) * stride_rn
    store_rows(to, at, rows, acc, SHAPE.COLUMNS, SHAPE.EVEN_COLUMNS)
    store_statistics(t_statistics, sums, statistics, plane, row, rows, some, WANTED)
    if REPAIR:
        counts = nonfinite_numbers(span, block, cache, t_cache, True, MOVES.V, 0, SHAPE)
        store_inf(to, at, rows, counts, SHAPE.COLUMNS, SHAPE.EVEN_COLUMNS)
