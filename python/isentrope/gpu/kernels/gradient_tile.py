"""One tile of the backward pass: recomputes scores and weights, and computes the gradients of logits.

Queries against their keys and keys against their queries share these steps.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from isentrope.gpu.kernels.dropout import Dropout, dropout_of, kept_weights
from isentrope.gpu.kernels.gradient_rows import LARGEST_KEY, TERMS
from isentrope.gpu.kernels.softmax import LEAST, Scales, View, apply_masks, distances, logits_of
from isentrope.gpu.kernels.span import some_sees, visit
from isentrope.gpu.kernels.tile import F16_LIFT, Matrix, advance, as_column, full, load_tile, offset


class Terms(NamedTuple):
    """Rows' terms from gradient_rows_kernel and largest_key_kernel.

    lift: weights, and so gradients of logits, are multiplied by 2^lift relative to all other terms."""

    lift: tl.tensor
    lse: tl.tensor
    base: tl.tensor
    share: tl.tensor
    linear: tl.tensor
    quadratic: tl.tensor
    collision: tl.tensor
    entropy: tl.tensor
    d_distance: tl.tensor
    own_key: tl.tensor
    d_most: tl.tensor
    largest_key: tl.tensor


class QueryBlock(NamedTuple):
    """Tile of queries and of output gradients, with the scales, masks, terms and dropout of its rows."""

    q: tl.tensor
    upstream: tl.tensor
    terms: Terms
    scales: Scales
    view: View
    dropout: Dropout
    head: tl.tensor
    query: tl.tensor


class Memory(NamedTuple):
    """Rows of one sequence in memory: queries, output gradients, rows' terms, a boolean mask, a bias and dropout. Each
    has its strides from head to head, from row to row and from key to key."""

    queries: tl.tensor
    q: Matrix
    q_to_head: tl.tensor
    upstream: Matrix
    upstream_to_head: tl.tensor
    terms: tl.tensor
    attn_mask: tl.tensor
    attn_mask_to_head: tl.tensor
    attn_mask_to_row: tl.tensor
    attn_mask_to_key: tl.tensor
    bias: tl.tensor
    bias_to_head: tl.tensor
    bias_to_row: tl.tensor
    bias_to_key: tl.tensor
    dropout: Dropout


@triton.jit
def memory_of(
    batch, q, d_output, terms, attn_mask, bias,
    stride_qb, stride_qh, stride_qn, stride_qd, stride_gb, stride_gh, stride_gn, stride_gd,
    stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
    heads, queries, dim, value_dim,
    seed, least, kept_factor, query_offset, key_offset, SHAPE: tl.constexpr,
):  # fmt: skip
    """Returns the rows of a sequence from the arguments of a kernel."""
    return Memory(
        queries, Matrix(q + batch * stride_qb, stride_qn, stride_qd, dim), stride_qh,
        Matrix(d_output + batch * stride_gb, stride_gn, stride_gd, value_dim), stride_gh,
        terms + batch * heads * queries * TERMS,
        attn_mask + batch * stride_mb, stride_mh, stride_mq, stride_mk, bias + batch * stride_bb, stride_bh, stride_bq, stride_bk,
        dropout_of(seed, least, kept_factor, batch, query_offset, key_offset, SHAPE),
    )  # fmt: skip


@triton.jit
def load_row_floats(at, rows, CHECKED: tl.constexpr):
    """Loads one float per row. CHECKED: returns 0 for rows past the end (one compare and select per iteration)."""
    if CHECKED:
        return tl.load(at, mask=rows, other=0.0)
    else:
        return tl.load(at)


@triton.jit
def load_terms(terms, rows, CHECKED: tl.constexpr, ROWS: tl.constexpr, GIVEN: tl.constexpr, LIFT: tl.constexpr):
    lse = load_row_floats(terms, rows, CHECKED)
    base = load_row_floats(terms + 1, rows, CHECKED)
    share, linear, quadratic, collision, entropy, d_distance, own_key = base, base, base, base, base, base, base
    d_most, largest_key = base, base
    if GIVEN.SINK:
        share = load_row_floats(terms + 5, rows, CHECKED)
    if GIVEN.LINEAR:
        linear = load_row_floats(terms + 6, rows, CHECKED)
    if GIVEN.QUADRATIC:
        entropy = load_row_floats(terms + 9, rows, CHECKED)
        quadratic = load_row_floats(terms + 7, rows, CHECKED)
    if GIVEN.COLLISION:
        collision = load_row_floats(terms + 8, rows, CHECKED)
    if GIVEN.DISTANCE:
        d_distance = load_row_floats(terms + 10, rows, CHECKED)
        own_key = load_row_floats(terms + 13, rows, CHECKED).to(tl.int32, bitcast=True)
    if GIVEN.LARGEST_KEY:
        d_most = load_row_floats(terms + 14, rows, CHECKED)
        largest_key = load_row_floats(terms + LARGEST_KEY, rows, CHECKED).to(tl.int32, bitcast=True)
    lift = full(ROWS, LIFT, tl.float32)
    return Terms(lift, lse, base, share, linear, quadratic, collision, entropy, d_distance, own_key, d_most, largest_key)


@triton.jit
def load_row_scales(terms, rows, CHECKED: tl.constexpr, SHAPE: tl.constexpr):
    before = load_row_floats(terms + 2, rows, CHECKED)
    after, on_bias = before, before
    if SHAPE.CAPPED:
        after = load_row_floats(terms + 3, rows, CHECKED)
    if SHAPE.BIAS:
        on_bias = load_row_floats(terms + 4, rows, CHECKED)
    return Scales(before, after, on_bias)


@triton.jit
def load_bounds(terms, rows):
    """Loads begin and end of the keys that structural masks leave rows; an empty range for rows past the end."""
    begin = tl.load(terms + 11, mask=rows, other=0.0).to(tl.int32, bitcast=True)
    return begin, tl.load(terms + 12, mask=rows, other=0.0).to(tl.int32, bitcast=True)


@triton.jit
def of_head(matrix, head, to_head):
    return Matrix(matrix.base + head * to_head, matrix.to_row, matrix.to_column, matrix.columns)


@triton.jit
def load_query_block(memory, head, first, SHAPE: tl.constexpr, GIVEN: tl.constexpr, MASKED: tl.constexpr):
    """Loads the rows of a head from `first` on. Without MASKED all rows exist and see every key of their tiles."""
    head = tl.cast(head, tl.int64)
    query = first + tl.arange(0, SHAPE.ROWS)
    rows = query < memory.queries
    wide = query.to(tl.int64)
    here = advance(of_head(memory.q, head, memory.q_to_head), first)
    q = load_tile(here, rows, SHAPE.ROWS, SHAPE.DIM, MASKED, SHAPE.EVEN)
    here = advance(of_head(memory.upstream, head, memory.upstream_to_head), first)
    upstream = load_tile(here, rows, SHAPE.ROWS, SHAPE.COLUMNS, MASKED, SHAPE.EVEN_COLUMNS)
    at_terms = memory.terms + (head * memory.queries + offset(first)) * TERMS + tl.arange(0, SHAPE.ROWS) * TERMS
    LIFT: tl.constexpr = F16_LIFT if q.dtype == tl.float16 else 0.0
    terms = load_terms(at_terms, rows, MASKED, SHAPE.ROWS, GIVEN, LIFT)
    scales = load_row_scales(at_terms, rows, MASKED, SHAPE)
    begin, end = query, query
    if MASKED:
        begin, end = load_bounds(at_terms, rows)
    attn_mask = memory.attn_mask + head * memory.attn_mask_to_head + wide * memory.attn_mask_to_row
    bias = memory.bias + head * memory.bias_to_head + wide * memory.bias_to_row
    view = View(rows, begin, end, attn_mask, bias, memory.attn_mask_to_key, memory.bias_to_key)
    return QueryBlock(q, upstream, terms, scales, view, memory.dropout, head, query)


@triton.jit
def block_sees(tile, memory, head, first_key, SHAPE: tl.constexpr):
    """Returns whether a row of a query block sees one of a tile's keys."""
    query = tile * SHAPE.ROWS + tl.arange(0, SHAPE.ROWS)
    rows = query < memory.queries
    begin, end = load_bounds(memory.terms + (tl.cast(head, tl.int64) * memory.queries + query) * TERMS, rows)
    return some_sees(rows, begin, end, first_key, SHAPE)


@triton.jit
def visit_heads(
    span, kv_head, group, memory, first_key, process: tl.constexpr, found, given, SHAPE: tl.constexpr, STAGES: tl.constexpr,
    MASKED: tl.constexpr,
):  # fmt: skip
    """Visits the query blocks of all heads that read a tile of keys: process(tile, found, memory, head, first_key, *given, ...)."""
    for head in range(kv_head * group, (kv_head + 1) * group):
        found = visit(span, block_sees, (memory, head, first_key), process, found, given, SHAPE, STAGES, MASKED)
    return found


@triton.jit
def with_terms(block, terms):
    return QueryBlock(block.q, block.upstream, terms, block.scales, block.view, block.dropout, block.head, block.query)


class Weights(NamedTuple):
    """Weights of a tile: t = ln p in log2 and p, both lifted, the soft-cap's slope, visible keys, and dropout's kept
    weights."""

    t: tl.tensor
    p: tl.tensor
    slope: tl.tensor
    seen: tl.tensor
    kept: tl.tensor


@triton.jit
def lifted_terms(terms, more, GIVEN: tl.constexpr):
    """Returns the terms for weights lifted further by 2^more."""
    base = terms.base
    if GIVEN.LINEAR and not GIVEN.QUADRATIC:
        base -= more * terms.linear
    return Terms(
        terms.lift + more, terms.lse - more, base, terms.share, terms.linear, terms.quadratic,
        terms.collision * tl.exp2(-more), terms.entropy - more, terms.d_distance, terms.own_key, terms.d_most,
        terms.largest_key,
    )  # fmt: skip


@triton.jit
def scaled_terms(terms, scale, GIVEN: tl.constexpr):
    """Returns the terms of scale times each row's gradient of logits."""
    share = scale
    if GIVEN.SINK:
        share = terms.share * scale
    return Terms(
        terms.lift, terms.lse, terms.base * scale, share, terms.linear * scale, terms.quadratic * scale, terms.collision * scale,
        terms.entropy, terms.d_distance * scale, terms.own_key, terms.d_most * scale, terms.largest_key,
    )  # fmt: skip


@triton.jit
def logit_slopes(
    weights, dp, terms, key, first_key, SHARED: tl.constexpr, GIVEN: tl.constexpr, FINITE: tl.constexpr, KEYS_FIRST: tl.constexpr
):  # fmt: skip
    """Returns dz / p; undefined for hidden keys. SHARED: the non-sink weight differs from 1. FINITE: no t is -inf, or a
    gradient of NaN is recomputed."""
    t, p = weights.t, weights.p
    if SHARED:
        slope = dp * as_column(terms.share, KEYS_FIRST) + as_column(terms.base, KEYS_FIRST)
    else:
        slope = dp + as_column(terms.base, KEYS_FIRST)
    if GIVEN.LINEAR:
        if not FINITE:
            t = tl.maximum(t, LEAST)
        factor = as_column(terms.linear, KEYS_FIRST)
        if GIVEN.QUADRATIC:
            t += as_column(terms.entropy, KEYS_FIRST)
            factor = factor + t * as_column(terms.quadratic, KEYS_FIRST)
        slope += t * factor
    if GIVEN.COLLISION:
        slope += p * as_column(terms.collision, KEYS_FIRST)
    if GIVEN.DISTANCE:
        away = distances(terms.own_key, key, first_key, KEYS_FIRST)
        slope += as_column(terms.d_distance, KEYS_FIRST) * away
    if GIVEN.LARGEST_KEY:
        is_largest = as_column(terms.largest_key, KEYS_FIRST) == as_column(key, not KEYS_FIRST)
        slope += tl.where(is_largest, as_column(terms.d_most, KEYS_FIRST), 0.0)
    return slope


@triton.jit
def tile_weights(
    scores, block, key, first_key, inside, cap, SHAPE: tl.constexpr, MASKED: tl.constexpr, KEYS_FIRST: tl.constexpr
):  # fmt: skip
    """Returns the weights from q.k of a tile, and the data for their gradient. p is 0 for hidden keys."""
    logits, slope = logits_of(scores, block.scales, cap, SHAPE.CAPPED, KEYS_FIRST)
    seen = scores == scores
    if MASKED:
        logits, seen = apply_masks(logits, block.view, block.scales.on_bias, key, inside, SHAPE, KEYS_FIRST)
        if SHAPE.CAPPED:
            slope = tl.where(seen, slope, 0.0)  # that of a hidden key may be NaN
    kept = seen
    if SHAPE.DROPOUT:
        kept = kept_weights(
            block.dropout, block.head, block.query, first_key, SHAPE.ROWS, SHAPE.KEYS, SHAPE.FOURS, KEYS_FIRST
        )  # fmt: skip
    # No logit exceeds its row's lse except by rounding.
    t = logits - as_column(block.terms.lse, KEYS_FIRST)
    t = tl.minimum(t, as_column(block.terms.lift, KEYS_FIRST), propagate_nan=tl.PropagateNan.ALL)
    if MASKED:
        t = tl.where(seen, t, float("-inf"))  # again, because the lse of a row may be NaN
    return Weights(t, tl.exp2(t), slope, seen, kept)


@triton.jit
def value_weights(weights, share, SHAPE: tl.constexpr, GIVEN: tl.constexpr, SELECT: tl.constexpr):
    """Returns the weights of values, [keys, rows]: 0 for hidden keys and, with SELECT, for rows with a NaN share."""
    p = weights.p
    if GIVEN.SINK:
        p = p * as_column(share, True)
    if SHAPE.DROPOUT:
        p = p * weights.kept.to(tl.float32)  # a NaN weight stays NaN
    if SELECT:
        p = tl.where(weights.seen, p, 0.0)
    return p


@triton.jit
def tile_gradients(
    weights, dp, terms, factor, key, first_key, SHARED: tl.constexpr,
    SHAPE: tl.constexpr, GIVEN: tl.constexpr, SELECT: tl.constexpr, FINITE: tl.constexpr, KEYS_FIRST: tl.constexpr,
):  # fmt: skip
    """Returns gradients of logits and of scaled scores from do.v of a tile, 0 for hidden keys. With SELECT they are
    also 0 if the product or a row's terms are non-finite. FINITE: as in logit_slopes. factor: dropout's factor of kept
    weights."""
    if SHAPE.DROPOUT:
        dp = tl.where(weights.kept, dp * factor, 0.0)
    dz = weights.p * logit_slopes(weights, dp, terms, key, first_key, SHARED, GIVEN, FINITE, KEYS_FIRST)
    ds = dz
    if SHAPE.CAPPED:
        ds = dz * weights.slope
    if SELECT:
        dz, ds = tl.where(weights.seen, dz, 0.0), tl.where(weights.seen, ds, 0.0)
    return dz, ds
