"""One tile of the tangent pass and of the second-order pass (decision 40): tangents of logits, and of their gradients.

A prime is a tangent. Units are natural, except weights, which are lifted in float16 (`gradient_rows`).
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from isentrope.gpu.kernels.gradient_range import exponent
from isentrope.gpu.kernels.gradient_tile import load_row_floats, logit_slopes, of_head
from isentrope.gpu.kernels.softmax import LEAST, LN2, LOG2E, tanh_of
from isentrope.gpu.kernels.tile import F16_LIFT, Matrix, advance, as_column, cast, dot, load_tile


class Moves(NamedTuple):
    """Which arguments have tangents."""

    Q: bool
    K: bool
    V: bool
    BIAS: bool
    LAMBDA: bool
    SINKS: bool


class Directions(NamedTuple):
    """Tangents of the rows of one sequence in memory. changes: from second_order_rows_kernel."""

    q: Matrix
    q_to_head: tl.tensor
    lambda_: tl.tensor
    bias: tl.tensor
    bias_to_head: tl.tensor
    bias_to_row: tl.tensor
    bias_to_key: tl.tensor
    changes: tl.tensor


class RowTangents(NamedTuple):
    """Tangents of a query block's q and lambda, and pointers to those of its bias. Then those of the rows' lse, base, entropy and
    ln w, w the non-sink weight."""

    q: tl.tensor
    lambda_: tl.tensor
    bias: tl.tensor
    to_bias: tl.tensor
    lse: tl.tensor
    base: tl.tensor
    entropy: tl.tensor
    non_sink: tl.tensor


@triton.jit
def directions_of(
    batch, t_q, t_lambda, t_bias, changes, stride_qb, stride_qh, stride_qn, stride_qd,
    stride_bb, stride_bh, stride_bq, stride_bk, heads, queries, dim,
):  # fmt: skip
    """Returns the tangents of a sequence's rows from the arguments of a kernel."""
    rows = batch * heads * queries
    return Directions(
        Matrix(t_q + batch * stride_qb, stride_qn, stride_qd, dim), stride_qh, t_lambda + rows,
        t_bias + batch * stride_bb, stride_bh, stride_bq, stride_bk, changes + rows * 4,
    )  # fmt: skip


@triton.jit
def load_row_tangents(
    directions, block, head, first, queries, SHAPE: tl.constexpr, MOVES: tl.constexpr, SECOND: tl.constexpr, CHECKED: tl.constexpr
):  # fmt: skip
    """Loads the tangents of a query block from `first` on. SECOND: of its terms too."""
    head, rows = tl.cast(head, tl.int64), block.view.rows
    query = block.query.to(tl.int64)
    q, lambda_ = block.q, block.scales.before
    if MOVES.Q:
        here = advance(of_head(directions.q, head, directions.q_to_head), first)
        q = load_tile(here, rows, SHAPE.ROWS, SHAPE.DIM, CHECKED, SHAPE.EVEN)
    row = head * queries + query
    if MOVES.LAMBDA:
        lambda_ = load_row_floats(directions.lambda_ + row, rows, CHECKED)
    bias = directions.bias + head * directions.bias_to_head + query * directions.bias_to_row
    lse, base, entropy, non_sink = lambda_, lambda_, lambda_, lambda_
    if SECOND:
        at = directions.changes + row * 4
        lse, base = load_row_floats(at, rows, CHECKED), load_row_floats(at + 1, rows, CHECKED)
        entropy, non_sink = load_row_floats(at + 2, rows, CHECKED), load_row_floats(at + 3, rows, CHECKED)
    return RowTangents(q, lambda_, bias, directions.bias_to_key, lse, base, entropy, non_sink)


@triton.jit
def dot_in_range(x, operand, acc, SHAPE: tl.constexpr):
    """Returns acc + x operand. In float16 each row of x, which may have any size, is multiplied by a power of two first."""
    if operand.dtype == tl.float16:
        lift = F16_LIFT - exponent(tl.max(tl.abs(x), 1))
        part = dot(cast(x * tl.exp2(lift)[:, None], operand.dtype), operand, tl.zeros_like(acc), SHAPE)
        return acc + part * tl.exp2(-lift)[:, None]
    else:
        return dot(cast(x, operand.dtype), operand, acc, SHAPE)


@triton.jit
def score_tangents(q, t_q, k, t_k, nothing, SHAPE: tl.constexpr, MOVES: tl.constexpr, KEYS_FIRST: tl.constexpr):
    """Returns q'.k + q.k' of a tile."""
    moved = nothing
    if KEYS_FIRST:
        if MOVES.Q:
            moved = dot(k, tl.trans(t_q), moved, SHAPE)
        if MOVES.K:
            moved = dot(t_k, tl.trans(q), moved, SHAPE)
    else:
        if MOVES.Q:
            moved = dot(t_q, tl.trans(k), moved, SHAPE)
        if MOVES.K:
            moved = dot(q, tl.trans(t_k), moved, SHAPE)
    return moved


@triton.jit
def logit_tangents(
    scores, moved, weights, block, tangents, key, inside, SHAPE: tl.constexpr, MOVES: tl.constexpr, MASKED: tl.constexpr,
    KEYS_FIRST: tl.constexpr,
):  # fmt: skip
    """Returns the tangents of scaled scores and of logits, which are 0 for hidden keys. moved: of score_tangents."""
    scales, view = block.scales, block.view
    scaled = moved * as_column(scales.before * LN2, KEYS_FIRST)
    if MOVES.LAMBDA:
        scaled += scores * as_column(tangents.lambda_, KEYS_FIRST)
    z = scaled
    if SHAPE.CAPPED:
        z = scaled * weights.slope
    if MOVES.BIAS:
        keys = as_column(key, not KEYS_FIRST)
        there = as_column(view.rows, KEYS_FIRST) & as_column(inside, not KEYS_FIRST)
        added = tl.load(as_column(tangents.bias, KEYS_FIRST) + keys.to(tl.int64) * tangents.to_bias, mask=there, other=0.0)
        z += added * as_column(scales.on_bias * LN2, KEYS_FIRST)
    if MASKED:
        z = tl.where(weights.seen, z, 0.0)
    return scaled, z


class SecondOrder(NamedTuple):
    """Tangents of a tile's numbers in the backward pass: of the weights of values, of gradients of logits and, times scales, of
    scaled scores, which q and k receive; the gradients of scaled scores themselves; and summands of d_lambda's tangent."""

    of_values: tl.tensor
    of_logits: tl.tensor
    of_scores: tl.tensor
    scores: tl.tensor
    of_lambda: tl.tensor


@triton.jit
def second_order(
    weights, scores, moved, dp, t_dp, block, tangents, key, first_key, inside, cap,
    SHAPE: tl.constexpr, GIVEN: tl.constexpr, MOVES: tl.constexpr, MASKED: tl.constexpr, KEYS_FIRST: tl.constexpr,
):  # fmt: skip
    """With c_j = z'_j - lse' the tangent of ln p_j, and slope_j = dz_j / p_j of logit_slopes:

        dz' = p [c slope + slope']      slope' = (w dp)' + base' + (linear + 2 quadratic u) (c + H') + collision p c
    """
    terms, p = block.terms, weights.p
    scaled, z = logit_tangents(scores, moved, weights, block, tangents, key, inside, SHAPE, MOVES, MASKED, KEYS_FIRST)
    c = z - as_column(tangents.lse, KEYS_FIRST)
    of_values = p * c
    if SHAPE.DROPOUT:
        factor = block.dropout.factor
        dp, t_dp = tl.where(weights.kept, dp * factor, 0.0), tl.where(weights.kept, t_dp * factor, 0.0)
    slope = logit_slopes(weights, dp, terms, key, first_key, GIVEN.SINK, GIVEN, False, KEYS_FIRST)
    if GIVEN.SINK:
        share, non_sink = as_column(terms.share, KEYS_FIRST), as_column(tangents.non_sink, KEYS_FIRST)
        t_dp = (t_dp + dp * non_sink) * share
        of_values = p * (c + non_sink) * share
    if SHAPE.DROPOUT:
        of_values = of_values * weights.kept.to(tl.float32)
    t_slope = t_dp + as_column(tangents.base, KEYS_FIRST)
    if GIVEN.LINEAR:
        t_slope += as_column(terms.linear * LOG2E, KEYS_FIRST) * c
    if GIVEN.QUADRATIC:
        u = tl.maximum(weights.t, LEAST) + as_column(terms.entropy, KEYS_FIRST)
        t_slope += u * as_column(terms.quadratic * (2 * LOG2E), KEYS_FIRST) * (c + as_column(tangents.entropy, KEYS_FIRST))
    if GIVEN.COLLISION:
        t_slope += p * as_column(terms.collision, KEYS_FIRST) * c
    dz, t_dz = p * slope, p * (c * slope + t_slope)
    ds, t_ds = dz, t_dz
    before = as_column(block.scales.before, KEYS_FIRST)
    if SHAPE.CAPPED:
        curvature = tanh_of(scores * before / cap)[0] * weights.slope * (-2.0 / (cap * LN2))
        ds, t_ds = dz * weights.slope, t_dz * weights.slope + dz * curvature * scaled
    of_lambda, first = t_ds * scores + ds * moved, ds * (before * LN2)
    second = t_ds * (before * LN2)
    if MOVES.LAMBDA:
        second += ds * as_column(tangents.lambda_, KEYS_FIRST)
    if MASKED:
        seen = weights.seen
        of_values, t_dz, second = tl.where(seen, of_values, 0.0), tl.where(seen, t_dz, 0.0), tl.where(seen, second, 0.0)
        first, of_lambda = tl.where(seen, first, 0.0), tl.where(seen, of_lambda, 0.0)
    return SecondOrder(of_values, t_dz, second, first, of_lambda)
