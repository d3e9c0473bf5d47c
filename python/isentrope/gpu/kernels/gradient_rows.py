"""Coefficients of each row's gradient, computed before its keys are visited.

With u = ln p_j + H, and w the non-sink weight,

    dz_j = p_j [ w do.v_j + base + linear u + quadratic u^2 + collision p_j + d_D |i - j| + (d_P if j is the largest key) ]

    base = d_lse - w do.output - 2 d_C C - d_V V - d_D D - d_P P     linear = 2 d_V - d_H     quadratic = d_V     collision = 2 d_C

Without d_V the entropy joins the base, and a tile computes base + linear t from t = log2 p, which it has for the weight.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from isentrope.gpu.kernels.gradient_range import largest_norm
from isentrope.gpu.kernels.softmax import LN2, LOG2E
from isentrope.gpu.kernels.span import program
from isentrope.gpu.kernels.tile import F16_FACTOR, F16_LIFT, Matrix, load_rows


class Given(NamedTuple):
    """Whether rows have a sink, and which terms the gradients of their statistics add to those of logits."""

    SINK: bool
    LINEAR: bool
    QUADRATIC: bool
    COLLISION: bool
    DISTANCE: bool
    LARGEST_KEY: bool


@triton.jit
def statistic(statistics, place, plane, row, rows, GIVEN: tl.constexpr):
    """Loads a slice of the statistics or of their gradients; 0 if it does not exist."""
    if GIVEN:
        return tl.load(statistics + place * plane + row, mask=rows, other=0.0)
    else:
        return tl.zeros(row.shape, tl.float32)


class Upstream(NamedTuple):
    """Upstream gradients of statistics; 0 if not given."""

    lse: tl.tensor
    entropy: tl.tensor
    collision: tl.tensor
    variance: tl.tensor
    distance: tl.tensor
    most: tl.tensor


@triton.jit
def load_upstream(d_statistics, plane, row, rows, WANTED: tl.constexpr, GIVEN: tl.constexpr):
    return Upstream(
        statistic(d_statistics, WANTED.LSE, plane, row, rows, GIVEN),
        statistic(d_statistics, WANTED.ENTROPY, plane, row, rows, GIVEN and WANTED.ENTROPY >= 0),
        statistic(d_statistics, WANTED.COLLISION, plane, row, rows, GIVEN and WANTED.COLLISION >= 0),
        statistic(d_statistics, WANTED.VARIANCE, plane, row, rows, GIVEN and WANTED.VARIANCE >= 0),
        statistic(d_statistics, WANTED.DISTANCE, plane, row, rows, GIVEN and WANTED.DISTANCE >= 0),
        statistic(d_statistics, WANTED.MAX_PROBABILITY, plane, row, rows, GIVEN and WANTED.MAX_PROBABILITY >= 0),
    )


@triton.jit
def base_of(d, statistics, plane, row, rows, product, WANTED: tl.constexpr, GIVEN: tl.constexpr):
    """Returns the coefficient base. product: w do.output."""
    base = d.lse - product
    if GIVEN and WANTED.COLLISION >= 0:
        base -= 2.0 * d.collision * statistic(statistics, WANTED.COLLISION, plane, row, rows, True)
    if GIVEN and WANTED.VARIANCE >= 0:
        base -= d.variance * statistic(statistics, WANTED.VARIANCE, plane, row, rows, True)
    if GIVEN and WANTED.DISTANCE >= 0:
        base -= d.distance * statistic(statistics, WANTED.DISTANCE, plane, row, rows, True)
    if GIVEN and WANTED.MAX_PROBABILITY >= 0:
        base -= d.most * statistic(statistics, WANTED.MAX_PROBABILITY, plane, row, rows, True)
    return base


# Floats of a row, stored contiguously, so that a tile computes one address for each row.
TERMS = tl.constexpr(16)
LARGEST_KEY = tl.constexpr(15)


@triton.jit
def bits(x):
    """Returns an int32 reinterpreted as float."""
    return x.to(tl.float32, bitcast=True)


class RowKeys(NamedTuple):
    """Keys begin ... end - 1 that structural masks leave each row, and the key at its own position."""

    begin: tl.tensor
    end: tl.tensor
    own_key: tl.tensor


@triton.jit
def bound_of(size, norm, base, linear, collision, entropy, d, keys):
    """Returns a bound of each row's gradients of logits. size: |do|; norm: the largest |v_j| that the row sees; d: an
    Upstream; keys: a RowKeys.

    With p <= 1, p |ln p| <= 1 / e and u = ln p + H:

        |dz| <= |do| max |v_j| + |base| + |linear| (H + 1 / e) + 2 |quadratic| (H^2 + 4 / e^2) + |collision| + |d_D| max |i - j| + |d_P|
    """
    away = tl.maximum(tl.abs(keys.own_key - keys.begin), tl.abs(keys.end - keys.own_key)).to(tl.float32)
    moments = tl.abs(linear) * (entropy + 0.4) + tl.abs(d.variance) * (2.0 * entropy * entropy + 1.1)
    return size * norm + tl.abs(base) + moments + tl.abs(collision) + tl.abs(d.distance) * away + tl.abs(d.most)


@triton.jit
def load_floats(x, to_batch, to_head, to_row, to_column, columns, batch, head, query, rows, COLUMNS: tl.constexpr):
    at = batch * to_batch + head * to_head + query.to(tl.int64) * to_row
    return load_rows(Matrix(x, to_row, to_column, columns), at, rows, COLUMNS, True, False).to(tl.float32)


@triton.jit
def store_sink(d_sinks, sink, lse, product, rows):
    """Stores the sink's gradient of each row, and returns the non-sink weight. product: do.output."""
    # If all logits are -inf, the sink has all the weight.
    d_sink = tl.where(lse == float("-inf"), 0.0, -product / (1.0 + tl.exp(lse - sink)))
    tl.store(d_sinks, d_sink, mask=rows)
    return 1.0 / (1.0 + tl.exp(sink - lse))


@triton.jit
def store_scales(to, scale, plane, rows):
    tl.store(to + 2, tl.load(scale, mask=rows, other=0.0), mask=rows)
    tl.store(to + 3, tl.load(scale + plane, mask=rows, other=0.0), mask=rows)
    tl.store(to + 4, tl.load(scale + 2 * plane, mask=rows, other=0.0), mask=rows)


@triton.jit
def store_coefficients(to, linear, collision, entropy, d, rows):
    tl.store(to + 6, linear * LN2, mask=rows)
    tl.store(to + 7, d.variance * (LN2 * LN2), mask=rows)
    tl.store(to + 8, collision, mask=rows)
    tl.store(to + 9, entropy * LOG2E, mask=rows)
    tl.store(to + 10, d.distance, mask=rows)


@triton.jit
def load_row_keys(begins, ends, own_keys, row, rows):
    begin, end = tl.load(begins + row, mask=rows, other=0), tl.load(ends + row, mask=rows, other=0)
    return RowKeys(begin, end, tl.load(own_keys + row, mask=rows, other=0))


@triton.jit
def store_row_keys(to, keys, rows):
    tl.store(to + 11, bits(keys.begin), mask=rows)
    tl.store(to + 12, bits(keys.end), mask=rows)
    tl.store(to + 13, bits(keys.own_key), mask=rows)


@triton.jit
def store_bounds(bounds, largest, some, scale, scale_plane, rows, plane, CAPPED: tl.constexpr):
    """Stores the rows' bounds. largest: bounds of gradients of logits; some: rows with keys. Others have no
    gradient."""
    if CAPPED:
        largest *= tl.maximum(1.0, tl.abs(tl.load(scale + scale_plane, mask=rows, other=0.0)))
    largest = tl.where(some, largest, 0.0)
    tl.store(bounds, largest, mask=rows)
    tl.store(bounds + plane, largest * tl.abs(tl.load(scale, mask=rows, other=0.0)), mask=rows)


@triton.jit(
    do_not_specialize=["heads", "kv_heads", "queries", "keys", "value_dim", "scale_batches", "scale_heads", "kept_factor", "dilation"]
)
def gradient_rows_kernel(
    output, d_output, statistics, d_statistics, sinks, begins, ends, own_keys, scales, norms, terms, bounds, d_sinks,
    stride_ob, stride_oh, stride_on, stride_od, stride_gb, stride_gh, stride_gn, stride_gd,
    heads, kv_heads, queries, keys, value_dim, scale_batches, scale_heads, kept_factor, dilation,
    WANTED: tl.constexpr, UPSTREAM: tl.constexpr, SINK: tl.constexpr, CAPPED: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Program (batch x head x rows): stores terms f32 [rows, TERMS], which gradient_tile.load_query_block reads.

    Their order: lse in log2; base; lambda in log2 before the soft-cap; the factor after it; that of the bias in log2;
    w, linear, quadratic, collision, entropy, d_distance; the bits of begin, end and own key; d_max_probability; and the
    bits of the largest key, which largest_key_kernel stores. Entropy, linear and quadratic are those of log2 p.
    d_sinks f32 [rows].

    In float16, whose weights are multiplied by 2^F16_LIFT, lse, collision and entropy are those of the multiplied
    weights. bounds f32 [2, rows] bound the gradients of logits and of queries' products with keys (gradient_range).
    norms f32 [batch, kv_heads, keys]: norms of values that some row may see."""
    tile, lane, lanes = program(tl.cdiv(queries, ROWS))
    index = tile * ROWS + tl.arange(0, ROWS)
    rows = index < queries
    batch, head = (lane // heads).to(tl.int64), (lane % heads).to(tl.int64)
    row = lane.to(tl.int64) * queries + index
    plane = lanes.to(tl.int64) * queries
    out = load_floats(output, stride_ob, stride_oh, stride_on, stride_od, value_dim, batch, head, index, rows, COLUMNS)
    upstream = load_floats(d_output, stride_gb, stride_gh, stride_gn, stride_gd, value_dim, batch, head, index, rows, COLUMNS)
    mean = tl.sum(out * upstream, 1)
    size = tl.sqrt(tl.sum(upstream * upstream, 1))

    lse = tl.load(statistics + WANTED.LSE * plane + row, mask=rows, other=0.0)
    entropy = statistic(statistics, WANTED.ENTROPY, plane, row, rows, WANTED.ENTROPY >= 0)
    d = load_upstream(d_statistics, plane, row, rows, WANTED, UPSTREAM)
    share = tl.full([ROWS], 1.0, tl.float32)
    if SINK:
        share = store_sink(d_sinks + row, tl.load(sinks + head), lse, mean, rows)
    base = base_of(d, statistics, plane, row, rows, share * mean, WANTED, UPSTREAM)
    bound = (batch % scale_batches) * queries + index
    scale = scales + ((batch % scale_batches) * scale_heads + head % scale_heads) * queries + index
    scale_plane = scale_batches.to(tl.int64) * scale_heads * queries
    to = terms + row * TERMS
    linear, collision, lse = 2.0 * d.variance - d.entropy, 2.0 * d.collision, lse * LOG2E
    visible = load_row_keys(begins, ends, own_keys, bound, rows)
    if output.dtype.element_ty == tl.float16:
        key_head = (batch * kv_heads + head // (heads // kv_heads)) * keys
        norm = largest_norm(norms + key_head, visible.begin, visible.end, dilation, rows, ROWS) * kept_factor
        largest = bound_of(size, norm, base, linear, collision, entropy, d, visible)
        store_bounds(bounds + row, largest, visible.end > visible.begin, scale, scale_plane, rows, plane, CAPPED)
        lse, collision, entropy = lse - F16_LIFT, collision / F16_FACTOR, entropy - F16_LIFT * LN2
    tl.store(to, lse, mask=rows)
    if UPSTREAM and WANTED.VARIANCE < 0:
        base += linear * entropy
    tl.store(to + 1, base, mask=rows)
    store_scales(to, scale, scale_plane, rows)
    tl.store(to + 5, share, mask=rows)
    store_coefficients(to, linear, collision, entropy, d, rows)
    store_row_keys(to, visible, rows)
    tl.store(to + 14, d.most, mask=rows)
