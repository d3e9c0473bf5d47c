"""What happens to one tile of scores, forward and back, in order: logits, masks; `sums` has the softmax and its moments.

Logits are in log2, z log2 e, so that a weight is one exp2.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from isentrope.gpu.kernels.tile import beside

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
# exp2 of it is 0 in float32. What lies below would make 0 * inf of moments that are 0.
LEAST = tl.constexpr(-200.0)
# Within it t = score * lambda - origin may be one multiply-add: it is exact, so that t of the largest key is not 0 but the
# rounding error of the origin, 2^-9 here at most. At logits of 2^31 that is 128: all weights of a row under- or overflow.
FUSED_RANGE = tl.constexpr(65536.0)


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
def distances(own_key, key, first_key, KEYS_FIRST: tl.constexpr):
    """|i - j| of a tile. Counted from its first key, which float32 does exactly where it matters."""
    own, its = (own_key - first_key).to(tl.float32), (key - first_key).to(tl.float32)
    return tl.abs(beside(own, KEYS_FIRST) - beside(its, not KEYS_FIRST))
