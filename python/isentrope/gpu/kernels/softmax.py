"""Logits and masks of one tile of scores, forward and backward; `sums` has the softmax and its moments.

Logits are in log2, z log2 e, so that a weight is one exp2.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from isentrope.gpu.kernels.tile import as_column

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
# exp2 of it is 0 in float32; lower values would give 0 * inf in moments that are 0.
LEAST = tl.constexpr(-200.0)
# Limit within which t = score * lambda - origin is one multiply-add. It is exact, so t of the largest key is the
# rounding error of the origin instead of 0, here at most 2^-9. At logits of 2^31 it would be 128: all weights of a row
# would under- or overflow.
FUSED_RANGE = tl.constexpr(65536.0)


class Scales(NamedTuple):
    """Scales of rows: lambda in log2 before the soft-cap, the factor after it, and that of the bias in log2."""

    before: tl.tensor
    after: tl.tensor
    on_bias: tl.tensor


class View(NamedTuple):
    """Masks of rows. rows: which of them exist. Structural masks leave each the keys begin ... end - 1. Dilated rows
    see every dilation-th of these, the first and the last included. A boolean mask and a bias are at the rows' pointers
    `attn_mask` and `bias`, with strides to the next key."""

    rows: tl.tensor
    begin: tl.tensor
    end: tl.tensor
    attn_mask: tl.tensor
    bias: tl.tensor
    to_attn_mask: tl.tensor
    to_bias: tl.tensor


@triton.jit
def load_scales(scales, plane, row, rows, SHAPE: tl.constexpr):
    """Loads the per-row scales stored by rows_kernel; 0 for rows past the end."""
    before = tl.load(scales + row, mask=rows, other=0.0)
    after, on_bias = before, before
    if SHAPE.CAPPED:
        after = tl.load(scales + plane + row, mask=rows, other=0.0)
    if SHAPE.BIAS:
        on_bias = tl.load(scales + 2 * plane + row, mask=rows, other=0.0)
    return Scales(before, after, on_bias)


@triton.jit
def tanh_of(x):
    """Returns tanh, and its slope 1 - tanh^2, without cancellation."""
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
    """Returns logits in log2, and their slope with respect to the scaled score: (soft_cap tanh(lambda s / soft_cap))
    after."""
    logits = scores * as_column(scales.before, KEYS_FIRST)
    if CAPPED:
        after = as_column(scales.after, KEYS_FIRST)
        tanh, slope = tanh_of(logits / cap)
        return tanh * cap * after, slope * after
    else:
        return logits, logits


@triton.jit
def seen_keys(keys, begin, end, DILATION: tl.constexpr):
    """Returns the keys that structural masks leave each row: one contiguous range, or every dilation-th key of one."""
    seen = (keys >= begin) & (keys < end)
    if DILATION > 1:
        seen = seen & ((keys - begin) % DILATION == 0)
    return seen


@triton.jit
def apply_masks(logits, view, on_bias, key, inside, SHAPE: tl.constexpr, KEYS_FIRST: tl.constexpr):
    """Adds the bias, and hides keys by selection, because hidden logits may be NaN. inside: keys that exist. Returns
    logits, and which keys each row sees."""
    keys = as_column(key, not KEYS_FIRST)
    there = as_column(view.rows, KEYS_FIRST) & as_column(inside, not KEYS_FIRST)
    seen = seen_keys(keys, as_column(view.begin, KEYS_FIRST), as_column(view.end, KEYS_FIRST), SHAPE.DILATION)
    if SHAPE.ATTN_MASK:
        at = as_column(view.attn_mask, KEYS_FIRST) + keys.to(tl.int64) * view.to_attn_mask
        seen = seen & (tl.load(at, mask=there, other=0) != 0)
    if SHAPE.BIAS:
        at = as_column(view.bias, KEYS_FIRST) + keys.to(tl.int64) * view.to_bias
        added = tl.load(at, mask=there, other=0.0)
        seen = seen & (added != float("-inf"))
        logits = logits + added * as_column(on_bias, KEYS_FIRST)
    return tl.where(seen, logits, float("-inf")), seen


@triton.jit
def distances(own_key, key, first_key, KEYS_FIRST: tl.constexpr):
    """Returns |i - j| of a tile, computed relative to its first key, so that float32 is exact where it matters."""
    own, its = (own_key - first_key).to(tl.float32), (key - first_key).to(tl.float32)
    return tl.abs(as_column(own, KEYS_FIRST) - as_column(its, not KEYS_FIRST))
