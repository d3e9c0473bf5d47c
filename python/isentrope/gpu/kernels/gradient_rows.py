"""Where each row's gradient starts, before any of its keys is visited. With u = ln p_j + H, and w the weight beside the
sink,

    dz_j = p_j [ w do.v_j + base + linear u + quadratic u^2 + collision p_j + d_D |i - j| + (d_P where j is the largest key) ]

    base = d_lse - w do.output - 2 d_C C - d_V V - d_D D - d_P P     linear = 2 d_V - d_H     quadratic = d_V     collision = 2 d_C
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
    """Whether rows have a sink, and which terms the gradients of their statistics bring to those of logits."""

    SINK: bool
    LINEAR: bool
    QUADRATIC: bool
    COLLISION: bool
    DISTANCE: bool
    LARGEST_KEY: bool


# The terms that the gradient of each statistic brings, beside the base.
TERMS_OF: dict[str, set[str]] = {
    "lse": set(),
    "entropy": {"LINEAR"},
    "variance": {"LINEAR", "QUADRATIC"},
    "collision": {"COLLISION"},
    "distance": {"DISTANCE"},
    "max_probability": {"LARGEST_KEY"},
}


@triton.jit
def statistic(statistics, place, plane, row, rows, GIVEN: tl.constexpr):
    """A slice of the statistics or of their gradients; 0 where there is none."""
    if GIVEN:
        return tl.load(statistics + place * plane + row, mask=rows, other=0.0)
    else:
        return tl.zeros(row.shape, tl.float32)


# Numbers of a row, one behind the other, so that a tile has one address for each row and not one for each number.
TERMS = tl.constexpr(16)
LARGEST_KEY = tl.constexpr(15)


@triton.jit
def bits(x):
    """An int32 among floats."""
    return x.to(tl.float32, bitcast=True)


@triton.jit
def bound_of(
    size, norm, base, linear, quadratic, collision, entropy, d_distance, d_most, begin, end, own_key
):  # fmt: skip
    """Of each row's gradients of logits. size: |do|; norm: the largest |v_j| that it sees. With p <= 1, p |ln p| <= 1 / e and
    u = ln p + H

    |dz| <= |do| max |v_j| + |base| + |linear| (H + 1 / e) + 2 |quadratic| (H^2 + 4 / e^2) + |collision| + |d_D| max |i - j| + |d_P|
    """
    away = tl.maximum(tl.abs(own_key - begin), tl.abs(end - own_key)).to(tl.float32)
    moments = tl.abs(linear) * (entropy + 0.4) + tl.abs(quadratic) * (2.0 * entropy * entropy + 1.1)
    return size * norm + tl.abs(base) + moments + tl.abs(collision) + tl.abs(d_distance) * away + tl.abs(d_most)


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
    """Program (batch x head x rows): terms f32 [rows, TERMS], of which gradient_tile.load_query_block reads some: lse in
    log2, base, lambda in log2 before the soft-cap, the factor after it, that of the bias in log2, w, linear, quadratic,
    collision, entropy, d_distance, the bits of begin, end and the key at the row's own position, d_max_probability; the last
    one is largest_key_kernel's. d_sinks f32 [rows]. In float16, whose weights are lifted, lse, collision and entropy are those
    of 2^F16_LIFT times the weights, and bounds f32 [2, rows] say how large gradients can become (gradient_range), of logits
    and of queries' products with keys. norms f32 [batch, kv_heads, keys]: of values that some row
    may see."""
    tile, lane, lanes = program(tl.cdiv(queries, ROWS))
    index = tile * ROWS + tl.arange(0, ROWS)
    rows = index < queries
    batch, head = (lane // heads).to(tl.int64), (lane % heads).to(tl.int64)
    row = lane.to(tl.int64) * queries + index
    plane = lanes.to(tl.int64) * queries
    at = batch * stride_ob + head * stride_oh + index.to(tl.int64) * stride_on
    out = load_rows(Matrix(output, stride_on, stride_od, value_dim), at, rows, COLUMNS, True, False).to(tl.float32)
    at = batch * stride_gb + head * stride_gh + index.to(tl.int64) * stride_gn
    upstream = load_rows(Matrix(d_output, stride_gn, stride_gd, value_dim), at, rows, COLUMNS, True, False).to(tl.float32)
    mean = tl.sum(out * upstream, 1)
    size = tl.sqrt(tl.sum(upstream * upstream, 1))

    lse = tl.load(statistics + WANTED.LSE * plane + row, mask=rows, other=0.0)
    entropy = statistic(statistics, WANTED.ENTROPY, plane, row, rows, WANTED.ENTROPY >= 0)
    d_lse = statistic(d_statistics, WANTED.LSE, plane, row, rows, UPSTREAM)
    d_entropy = statistic(d_statistics, WANTED.ENTROPY, plane, row, rows, UPSTREAM and WANTED.ENTROPY >= 0)
    d_collision = statistic(d_statistics, WANTED.COLLISION, plane, row, rows, UPSTREAM and WANTED.COLLISION >= 0)
    d_variance = statistic(d_statistics, WANTED.VARIANCE, plane, row, rows, UPSTREAM and WANTED.VARIANCE >= 0)
    d_distance = statistic(d_statistics, WANTED.DISTANCE, plane, row, rows, UPSTREAM and WANTED.DISTANCE >= 0)
    given = UPSTREAM and WANTED.MAX_PROBABILITY >= 0
    d_most = statistic(d_statistics, WANTED.MAX_PROBABILITY, plane, row, rows, given)
    share = tl.full([ROWS], 1.0, tl.float32)
    if SINK:
        # Logits that are all -inf leave the sink no key to share with.
        sink = tl.load(sinks + head)
        share = 1.0 / (1.0 + tl.exp(sink - lse))
        d_sink = tl.where(lse == float("-inf"), 0.0, -mean / (1.0 + tl.exp(lse - sink)))
        tl.store(d_sinks + row, d_sink, mask=rows)
    base = d_lse - share * mean
    if UPSTREAM and WANTED.COLLISION >= 0:
        base -= 2.0 * d_collision * tl.load(statistics + WANTED.COLLISION * plane + row, mask=rows, other=0.0)
    if UPSTREAM and WANTED.VARIANCE >= 0:
        base -= d_variance * tl.load(statistics + WANTED.VARIANCE * plane + row, mask=rows, other=0.0)
    if UPSTREAM and WANTED.DISTANCE >= 0:
        base -= d_distance * tl.load(statistics + WANTED.DISTANCE * plane + row, mask=rows, other=0.0)
    if UPSTREAM and WANTED.MAX_PROBABILITY >= 0:
        base -= d_most * tl.load(statistics + WANTED.MAX_PROBABILITY * plane + row, mask=rows, other=0.0)
    bound = (batch % scale_batches) * queries + index
    scale = scales + ((batch % scale_batches) * scale_heads + head % scale_heads) * queries + index
    scale_plane = scale_batches.to(tl.int64) * scale_heads * queries
    to = terms + row * TERMS
    linear, collision, lse = 2.0 * d_variance - d_entropy, 2.0 * d_collision, lse * LOG2E
    begin, end = tl.load(begins + bound, mask=rows, other=0), tl.load(ends + bound, mask=rows, other=0)
    own_key = tl.load(own_keys + bound, mask=rows, other=0)
    if output.dtype.element_ty == tl.float16:
        key_head = (batch * kv_heads + head // (heads // kv_heads)) * keys
        norm = largest_norm(norms + key_head, begin, end, dilation, rows, ROWS) * kept_factor
        largest = bound_of(size, norm, base, linear, d_variance, collision, entropy, d_distance, d_most, begin, end, own_key)
        if CAPPED:
            largest *= tl.maximum(1.0, tl.abs(tl.load(scale + scale_plane, mask=rows, other=0.0)))
        largest = tl.where(end > begin, largest, 0.0)  # what arrives at a row without keys is nobody's
        tl.store(bounds + row, largest, mask=rows)
        tl.store(bounds + plane + row, largest * tl.abs(tl.load(scale, mask=rows, other=0.0)), mask=rows)
        lse, collision, entropy = lse - F16_LIFT, collision / F16_FACTOR, entropy - F16_LIFT * LN2
    tl.store(to, lse, mask=rows)
    tl.store(to + 1, base, mask=rows)
    tl.store(to + 2, tl.load(scale, mask=rows, other=0.0), mask=rows)
    tl.store(to + 3, tl.load(scale + scale_plane, mask=rows, other=0.0), mask=rows)
    tl.store(to + 4, tl.load(scale + 2 * scale_plane, mask=rows, other=0.0), mask=rows)
    tl.store(to + 5, share, mask=rows)
    tl.store(to + 6, linear, mask=rows)
    tl.store(to + 7, d_variance, mask=rows)
    tl.store(to + 8, collision, mask=rows)
    tl.store(to + 9, entropy, mask=rows)
    tl.store(to + 10, d_distance, mask=rows)
    tl.store(to + 11, bits(begin), mask=rows)
    tl.store(to + 12, bits(end), mask=rows)
    tl.store(to + 13, bits(own_key), mask=rows)
    tl.store(to + 14, d_most, mask=rows)
