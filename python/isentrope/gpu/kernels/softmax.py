"""What happens to one tile of scores, forward and back, in order: logits, masks, softmax with its moments.

Logits are in log2, z log2 e, so that a weight is one exp2.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from isentrope.gpu.kernels.tile import beside, zeros

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
# exp2 of it is 0 in float32. What lies below would make 0 * inf of moments that are 0.
LEAST = tl.constexpr(-200.0)
LANES = tl.constexpr(8)


class Scales(NamedTuple):
    """Of rows: lambda in log2 before the soft-cap, the factor after it, and that of the bias in log2."""

    before: tl.tensor
    after: tl.tensor
    on_bias: tl.tensor


class View(NamedTuple):
    """What rows see. `rows`: which of them there are. Structural masks leave each the keys begin ... end - 1, of which
    dilated rows see every so many-th, the first and the last but few; a boolean
    mask and a bias lie at pointers `attn_mask` and `bias` of each row, with steps to the next key."""

    rows: tl.tensor
    begin: tl.tensor
    end: tl.tensor
    attn_mask: tl.tensor
    bias: tl.tensor
    to_attn_mask: tl.tensor
    to_bias: tl.tensor


class RowState(NamedTuple):
    """Largest logit m, and with t = logit - m: sum w, sum w t, sum w t^2, sum w^2, sum w |i - j|, as far as wanted.

    While tiles join it, sums are [rows, LANES], each of every eighth key: so the scores of a row lie among the threads
    of a tensor core's product, and no sum has to travel between them before the last tile."""

    m: tl.tensor
    s0: tl.tensor
    s1: tl.tensor
    s1p: tl.tensor
    s2: tl.tensor
    s3: tl.tensor


@triton.jit
def load_scales(scales, plane, row, rows, SHAPE: tl.constexpr):
    """What rows_kernel left of these rows; 0 of rows that there are not."""
    before = tl.load(scales + row, mask=rows, other=0.0)
    after, on_bias = before, before
    if SHAPE.CAPPED:
        after = tl.load(scales + plane + row, mask=rows, other=0.0)
    if SHAPE.BIAS:
        on_bias = tl.load(scales + 2 * plane + row, mask=rows, other=0.0)
    return Scales(before, after, on_bias)


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
def logits_of(scores, scales, cap, CAPPED: tl.constexpr, KEYS_FIRST: tl.constexpr):
    """Logits in log2, and their slope by the scaled score: (soft_cap tanh(lambda s / soft_cap)) after."""
    logits = scores * beside(scales.before, KEYS_FIRST)
    if CAPPED:
        after = beside(scales.after, KEYS_FIRST)
        tanh, slope = tanh_of(logits / cap)
        return tanh * cap * after, slope * after
    else:
        return logits, logits


@triton.jit
def seen_keys(keys, begin, end, DILATION: tl.constexpr):
    """Which keys the structural masks leave each row: one contiguous range, or every so many-th key of one."""
    seen = (keys >= begin) & (keys < end)
    if DILATION > 1:
        seen = seen & ((keys - begin) % DILATION == 0)
    return seen


@triton.jit
def apply_masks(logits, view, on_bias, key, inside, SHAPE: tl.constexpr, KEYS_FIRST: tl.constexpr):
    """Adds the bias, and hides by selection, for what is hidden may be NaN. `inside`: which keys there are.

    Returns logits, and which keys each row sees.
    """
    keys = beside(key, not KEYS_FIRST)
    there = beside(view.rows, KEYS_FIRST) & beside(inside, not KEYS_FIRST)
    seen = seen_keys(keys, beside(view.begin, KEYS_FIRST), beside(view.end, KEYS_FIRST), SHAPE.DILATION)
    if SHAPE.ATTN_MASK:
        at = beside(view.attn_mask, KEYS_FIRST) + keys.to(tl.int64) * view.to_attn_mask
        seen = seen & (tl.load(at, mask=there, other=0) != 0)
    if SHAPE.BIAS:
        at = beside(view.bias, KEYS_FIRST) + keys.to(tl.int64) * view.to_bias
        added = tl.load(at, mask=there, other=0.0)
        seen = seen & (added != float("-inf"))
        logits = logits + added * beside(on_bias, KEYS_FIRST)
    return tl.where(seen, logits, float("-inf")), seen


@triton.jit
def raised(m, most):
    """The largest logit so far, the origin of weights, and the factor and shift of what was summed before."""
    m_new = tl.maximum(m, most)
    origin = tl.where(m_new == float("-inf"), 0.0, m_new)
    shift = m - origin
    return m_new, origin, tl.exp2(shift), tl.maximum(shift, LEAST)


@triton.jit
def rebase(state, m, rescale, shift, WANTED: tl.constexpr):
    """Sums about an old maximum become sums about m: t grows by `shift`, weights by `rescale` = 2^shift, both laid out
    like the sums."""
    s0, s1, s1p, s2, s3 = state.s0, state.s1, state.s1p, state.s2, state.s3
    if WANTED.MOMENTS >= 2:
        s1p = rescale * (s1p + shift * (2.0 * s1 + shift * s0))
    if WANTED.MOMENTS >= 1:
        s1 = rescale * (s1 + shift * s0)
    if WANTED.COLLISION >= 0:
        s2 = rescale * rescale * s2
    if WANTED.DISTANCE >= 0:
        s3 = rescale * s3
    return RowState(m, rescale * s0, s1, s1p, s2, s3)


@triton.jit
def joined(a, b):
    """Sums of different keys about the same maximum."""
    return RowState(a.m, a.s0 + b.s0, a.s1 + b.s1, a.s1p + b.s1p, a.s2 + b.s2, a.s3 + b.s3)


@triton.jit
def distances(own_key, key, first_key, KEYS_FIRST: tl.constexpr):
    """|i - j| of a tile. Counted from its first key, which float32 does exactly where it matters."""
    own, its = (own_key - first_key).to(tl.float32), (key - first_key).to(tl.float32)
    return tl.abs(beside(own, KEYS_FIRST) - beside(its, not KEYS_FIRST))


@triton.jit
def lanes(x, ROWS: tl.constexpr, KEYS: tl.constexpr):
    """[ROWS, KEYS] as [ROWS, KEYS // LANES, LANES]."""
    return tl.reshape(x, [ROWS, KEYS // LANES, LANES])


@triton.jit
def by_lane(x, ROWS: tl.constexpr, KEYS: tl.constexpr):
    """[ROWS, KEYS] summed to [ROWS, LANES]."""
    return tl.sum(lanes(x, ROWS, KEYS), 1)


@triton.jit
def halves(x, ROWS: tl.constexpr, COUNT: tl.constexpr):
    """[ROWS, COUNT, LANES] cut in the middle."""
    return tl.split(tl.permute(tl.reshape(x, [ROWS, 2, COUNT // 2, LANES]), (0, 2, 3, 1)))


@triton.jit
def add_products(sums, a, b, ROWS: tl.constexpr, COUNT: tl.constexpr):
    """Products of [ROWS, COUNT, LANES] join sums [ROWS, LANES] one behind the other."""
    if COUNT == 1:
        return sums + tl.reshape(a, [ROWS, LANES]) * tl.reshape(b, [ROWS, LANES])
    else:
        first_a, last_a = halves(a, ROWS, COUNT)
        first_b, last_b = halves(b, ROWS, COUNT)
        sums = add_products(sums, first_a, first_b, ROWS, COUNT // 2)
        return add_products(sums, last_a, last_b, ROWS, COUNT // 2)


@triton.jit
def products_by_lane(a, b, SHAPE: tl.constexpr):
    """a times b, [ROWS, KEYS], summed to [ROWS, LANES]. CHAINED: one behind the other, for a tree, which tl.sum makes, does not
    fuse every product with an addition: 11 instructions for 8 of them."""
    if SHAPE.CHAINED:
        a, b = lanes(a, SHAPE.ROWS, SHAPE.KEYS), lanes(b, SHAPE.ROWS, SHAPE.KEYS)
        return add_products(zeros(SHAPE.ROWS, LANES), a, b, SHAPE.ROWS, SHAPE.KEYS // LANES)
    else:
        return by_lane(a * b, SHAPE.ROWS, SHAPE.KEYS)


@triton.jit
def add_moments(state, t, w, own_key, key, first_key, SHAPE: tl.constexpr, WANTED: tl.constexpr):
    """A tile of weights w = 2^t joins the sums. own_key: the key at each row's own position. 0 times -inf is NaN: where
    a logit may be -inf, t is LEAST at least."""
    s0, s1, s1p, s2, s3 = state.s0 + by_lane(w, SHAPE.ROWS, SHAPE.KEYS), state.s1, state.s1p, state.s2, state.s3
    if WANTED.MOMENTS >= 1:
        s1 += products_by_lane(w, t, SHAPE)
    if WANTED.MOMENTS >= 2:
        s1p += products_by_lane(w * t, t, SHAPE)
    if WANTED.COLLISION >= 0:
        s2 += products_by_lane(w, w, SHAPE)
    if WANTED.DISTANCE >= 0:
        s3 += products_by_lane(w, distances(own_key, key, first_key, False), SHAPE)
    return RowState(state.m, s0, s1, s1p, s2, s3)


@triton.jit
def of_all_lanes(state):
    """The sums of rows, [rows]."""
    return RowState(
        state.m, tl.sum(state.s0, 1), tl.sum(state.s1, 1), tl.sum(state.s1p, 1), tl.sum(state.s2, 1), tl.sum(state.s3, 1)
    )
