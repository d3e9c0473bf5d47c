"""What happens to one tile of scores, in order: product, logits, masks, softmax with its moments, value sums.

Forward and backward kernels share these steps. Logits are measured in bits, z log2 e, so that a weight is one exp2.
A tile is [queries, keys] or its transpose: numbers of rows and of keys come with an axis of 1 where the other runs.
"""

from __future__ import annotations

import os

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
# exp2 of it is 0 in float32. What lies below would make 0 * inf of moments that are 0.
LEAST = tl.constexpr(-200.0)
# Weights in float16 are kept this much larger, so that small ones do not become denormal: 2^14, exact to undo.
F16_LIFT = tl.constexpr(16384.0)


@triton.jit
def dot(a, b, acc, PRECISION: tl.constexpr):
    """acc + a b, with products of 16-bit numbers exact and sums in float32."""
    if INTERPRETED:
        # The interpreter would multiply the bit patterns of bfloat16.
        return acc + tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    else:
        return tl.dot(a, b, acc, input_precision=PRECISION)


@triton.jit
def narrow(x, dtype: tl.constexpr):
    """x in the type of a product or a result, rounded to nearest even."""
    if INTERPRETED and dtype == tl.bfloat16:
        # The interpreter cuts digits off.
        bits = x.to(tl.uint32, bitcast=True)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        x = tl.where(x == x, rounded.to(tl.float32, bitcast=True), x)
    return x.to(dtype)


@triton.jit
def load_rows(base, row_offsets, rows, columns, stride, COLUMNS: tl.constexpr, CHECK_ROWS: tl.constexpr, EVEN: tl.constexpr):
    """[rows, COLUMNS] numbers at base + row_offsets; 0 where `rows` is False and beyond `columns`."""
    column = tl.arange(0, COLUMNS)
    at = base + row_offsets[:, None] + column[None, :].to(tl.int64) * stride
    if EVEN:
        if CHECK_ROWS:
            return tl.load(at, mask=rows[:, None], other=0.0)
        else:
            return tl.load(at)
    else:
        return tl.load(at, mask=rows[:, None] & (column < columns)[None, :], other=0.0)


@triton.jit
def key_offsets(keys, table, page_size, stride_page, stride_key, PAGED: tl.constexpr):
    """Where keys lie: behind one another, or each page of them where the table says."""
    if PAGED:
        page = tl.load(table + keys // page_size)
        return page.to(tl.int64) * stride_page + (keys % page_size).to(tl.int64) * stride_key
    else:
        return keys.to(tl.int64) * stride_key


@triton.jit
def tanh_of(x):
    """tanh, and its slope 1 - tanh^2, with the digits that 1 - tanh^2 would cancel."""
    size = tl.abs(x)
    e = tl.exp2(size * (-2 * LOG2E))
    share = 1.0 / (1.0 + e)
    square = x * x
    series = square * (-17.0 / 315) + 2.0 / 15
    series = series * square - 1.0 / 3
    series = series * square * size + size
    result = tl.where(size < 0.1, series, (1.0 - e) * share)
    return tl.where(x < 0, -result, result), 4.0 * e * share * share


@triton.jit
def logits_of(scores, before, after, cap, CAPPED: tl.constexpr):
    """Logits in bits, and their slope by the scaled score: (soft_cap tanh(lambda s / soft_cap)) after."""
    logits = scores * before
    if CAPPED:
        tanh, slope = tanh_of(logits / cap)
        return tanh * cap * after, slope * after
    else:
        return logits, logits


@triton.jit
def seen_keys(keys, begin, end):
    """Which keys the structural masks leave each row: one contiguous range."""
    return (keys >= begin) & (keys < end)


@triton.jit
def apply_masks(
    logits, seen, inside, keys, admitted, bias, on_bias, stride_mask, stride_bias,
    ADMITTED: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """Adds the bias, and hides by selection, for what is hidden may be NaN. `admitted` and `bias` point at rows, and
    `inside` says which rows and keys there are.

    Returns logits, and which keys the row admits.
    """
    if ADMITTED:
        seen = seen & (tl.load(admitted + keys.to(tl.int64) * stride_mask, mask=inside, other=0) != 0)
    if BIAS:
        added = tl.load(bias + keys.to(tl.int64) * stride_bias, mask=inside, other=0.0)
        seen = seen & (added != float("-inf"))
        logits = logits + added * on_bias
    return tl.where(seen, logits, float("-inf")), seen


@triton.jit
def raised(m, logits):
    """The largest logit so far, the origin of weights, and the factor and shift of what was summed before."""
    m_new = tl.maximum(m, tl.max(logits, 1))
    origin = tl.where(m_new == float("-inf"), 0.0, m_new)
    # A row's first keys have nothing behind them to rebase, and -inf - -inf is no shift.
    first = m == float("-inf")
    shift = tl.where(first, 0.0, m - origin)
    keep = tl.where(first, 0.0, tl.exp2(shift))
    return m_new, origin, keep, tl.where(shift < LEAST, LEAST, shift)


@triton.jit
def rebase(
    keep, shift, s0, s1, s1p, s2, s3, MOMENTS: tl.constexpr, COLLISION: tl.constexpr, DISTANCE: tl.constexpr
):
    """Sums about an old maximum become sums about a new one: t grows by `shift`, weights by `keep` = 2^shift."""
    if MOMENTS >= 2:
        s1p = keep * (s1p + shift * (2.0 * s1 + shift * s0))
    if MOMENTS >= 1:
        s1 = keep * (s1 + shift * s0)
    if COLLISION:
        s2 = keep * keep * s2
    if DISTANCE:
        s3 = keep * s3
    return keep * s0, s1, s1p, s2, s3


@triton.jit
def add_moments(
    t, w, distance, s0, s1, s1p, s2, s3, MOMENTS: tl.constexpr, COLLISION: tl.constexpr, DISTANCE: tl.constexpr
):
    """s0 = sum w, s1 = sum w t, s1p = sum w t^2, s2 = sum w^2, s3 = sum w |i - j|, of what was asked for."""
    s0 += tl.sum(w, 1)
    if MOMENTS >= 1:
        t = tl.where(t < LEAST, 0.0, t)
        wt = w * t
        s1 += tl.sum(wt, 1)
        if MOMENTS >= 2:
            s1p += tl.sum(wt * t, 1)
    if COLLISION:
        s2 += tl.sum(w * w, 1)
    if DISTANCE:
        s3 += tl.sum(w * distance, 1)
    return s0, s1, s1p, s2, s3


@triton.jit
def finite_part(values, wrong, MASKED: tl.constexpr):
    """Values without those that are no numbers, and which rows had some so far.

    0 times NaN is NaN, so in a tile that hides something they are taken out; `reach` puts them back, in a pass of its
    own that hardly ever runs: inside the loop it would cost the registers that keep it from spilling.
    """
    if MASKED:
        # In float32, for the interpreter compares the bit patterns of bfloat16.
        wide = values.to(tl.float32)
        finite = tl.abs(wide) < float("inf")
        wrong = wrong | tl.max((finite == 0).to(tl.int32), 1)
        values = tl.where(finite, values, 0.0).to(values.dtype)
    return values, wrong


@triton.jit
def reach(admitted, values, acc):
    """Drives the sums of rows that admit a value that is no number beyond float32, with 256 times the largest bfloat16."""
    wide = values.to(tl.float32)
    finite = tl.abs(wide) < float("inf")
    beyond = tl.where(finite, 0.0, 3.3e38).to(tl.bfloat16)
    return dot(tl.where(admitted, 256.0, 0.0).to(tl.bfloat16), beyond, acc, PRECISION="tf32")


@triton.jit
def tile_range(begin, end, rows, KEYS: tl.constexpr):
    """Tiles of KEYS keys that some row of a strip sees: first, one past the last, and between them those that hide
    nothing from any row: full_first, one past full_last."""
    some = rows & (end > begin)
    far = 2147483647
    first = tl.min(tl.where(some, begin, far), 0) // KEYS
    last = tl.cdiv(tl.max(tl.where(some, end, 0), 0), KEYS)
    first = tl.minimum(first, last)
    full_first = tl.maximum(first, tl.cdiv(tl.max(tl.where(some, begin, 0), 0), KEYS))
    full_last = tl.minimum(last, tl.min(tl.where(some, end, far), 0) // KEYS)
    nothing = full_last <= full_first
    return first, tl.where(nothing, last, full_first), tl.where(nothing, last, full_last), last
