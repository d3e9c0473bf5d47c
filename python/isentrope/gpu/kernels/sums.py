"""Running sums of a row over tiles of keys: softmax with its moments.

The row state's algebra is in docs/contributors/row-state.md. During the loop each of a row's sums covers every eighth
key or, if sums are CHAINED, two neighbours of every eight. So the scores of a row stay in the threads of a tensor
core's product, and no sum moves between threads before the last tile.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from isentrope.gpu.kernels.softmax import LEAST, distances
from isentrope.gpu.kernels.tile import full, zeros

LANES = tl.constexpr(8)
PAIRS = tl.constexpr(4)


class RowState(NamedTuple):
    """Largest logit m, and with t = logit - m: sum w, sum w t, sum w t^2, sum w^2, sum w |i - j|, as far as requested.
    If no row sees a key after its own, and a tile hides nothing, distances count from the last key so far of each sum
    (`farther`). At the end `from_own` moves them to the row. All of these terms are non-negative, so none cancels
    another."""

    m: tl.tensor
    s0: tl.tensor
    s1: tl.tensor
    s1p: tl.tensor
    s2: tl.tensor
    s3: tl.tensor


@triton.jit
def raised(m, most):
    """Returns the new largest logit, the origin of weights, and the factor and shift of earlier sums."""
    m_new = tl.maximum(m, most)
    origin = tl.where(m_new == float("-inf"), 0.0, m_new)
    shift = m - origin
    return m_new, origin, tl.exp2(shift), tl.maximum(shift, LEAST)


@triton.jit
def raised_from_finite(m, most):
    """Returns what `raised` does, for rows whose largest logit so far is in FUSED_RANGE, or which start anew."""
    m_new = tl.maximum(m, most)
    shift = m - m_new
    return m_new, m_new, tl.exp2(shift), shift


@triton.jit
def rebase(state, m, rescale, shift, WANTED: tl.constexpr):
    """Converts sums about an old maximum to sums about m: t grows by `shift`, weights by `rescale` = 2^shift. Both have
    the layout of the sums."""
    s0, s1, s1p, s2, s3 = state.s0, state.s1, state.s1p, state.s2, state.s3
    if WANTED.MOMENTS >= 1:
        moved = s1 + shift * s0
        if WANTED.MOMENTS >= 2:
            s1p = rescale * (s1p + shift * (s1 + moved))
        s1 = rescale * moved
    if WANTED.COLLISION >= 0:
        s2 = rescale * rescale * s2
    if WANTED.DISTANCE >= 0:
        s3 = rescale * s3
    return RowState(m, rescale * s0, s1, s1p, s2, s3)


@triton.jit
def joined(a, b):
    """Returns the sums over both sets of keys, which have the same maximum."""
    return RowState(a.m, a.s0 + b.s0, a.s1 + b.s1, a.s1p + b.s1p, a.s2 + b.s2, a.s3 + b.s3)


@triton.jit
def no_keys(COUNT: tl.constexpr):
    """Returns the sums of COUNT rows over no keys, [COUNT]."""
    none = tl.zeros([COUNT], tl.float32)
    return RowState(none + float("-inf"), none, none, none, none, none)


@triton.jit
def with_parts(state, parts, WANTED: tl.constexpr):
    """Adds parts [rows, count] to the sums of rows. Returns also the factors of what rows summed before, and of what each
    part summed."""
    m, origin, rescale, shift = raised(state.m, tl.max(parts.m, 1))
    _, _, take, moved = raised(parts.m, origin[:, None])
    state, parts = rebase(state, m, rescale, shift, WANTED), rebase(parts, parts.m, take, moved, WANTED)
    return joined(state, of_rows(parts)), rescale, take


@triton.jit
def split_halves(x, ROWS: tl.constexpr, KEYS: tl.constexpr):
    """Splits [ROWS, KEYS] in the middle; for at most LANES keys into even and odd neighbours."""
    if KEYS > LANES:
        return tl.split(tl.permute(tl.reshape(x, [ROWS, 2, KEYS // 2]), (0, 2, 1)))
    else:
        return tl.split(tl.reshape(x, [ROWS, KEYS // 2, 2]))


@triton.jit
def no_sums(SHAPE: tl.constexpr):
    return zeros(SHAPE.ROWS, PAIRS if SHAPE.CHAINED == PAIRS else LANES)


@triton.jit
def empty_state(m, SHAPE: tl.constexpr):
    """Returns the state of rows without keys. m: lower bound of the origin of their weights."""
    zero = no_sums(SHAPE)
    return RowState(full(SHAPE.ROWS, m, tl.float32), zero, zero, zero, zero, zero)


@triton.jit
def like_sums(x, SHAPE: tl.constexpr):
    """Returns per-row numbers in the layout of the sums; pairs go by way of their keys, so that Triton moves no
    sums."""
    if SHAPE.CHAINED == PAIRS:
        first, _ = split_halves(tl.broadcast_to(x[:, None], [SHAPE.ROWS, LANES]), SHAPE.ROWS, LANES)
        return first
    else:
        return x[:, None]


@triton.jit
def summed(x, SHAPE: tl.constexpr):
    """Returns [ROWS, KEYS] as sums of rows."""
    sums = tl.sum(tl.reshape(x, [SHAPE.ROWS, SHAPE.KEYS // LANES, LANES]), 1)
    if SHAPE.CHAINED == PAIRS:
        first, second = split_halves(sums, SHAPE.ROWS, LANES)
        return first + second
    else:
        return sums


@triton.jit
def chain(sums, a, b, ROWS: tl.constexpr, KEYS: tl.constexpr, CHAINED: tl.constexpr):
    """Adds products of [ROWS, KEYS] to sums [ROWS, CHAINED], one after the other; None: the first one initialises
    them."""
    if KEYS == CHAINED:
        if sums is None:
            return a * b
        else:
            return sums + a * b
    else:
        first_a, last_a = split_halves(a, ROWS, KEYS)
        first_b, last_b = split_halves(b, ROWS, KEYS)
        sums = chain(sums, first_a, first_b, ROWS, KEYS // 2, CHAINED)
        return chain(sums, last_a, last_b, ROWS, KEYS // 2, CHAINED)


@triton.jit
def summed_products(a, b, SHAPE: tl.constexpr):
    """Returns a times b, [ROWS, KEYS], as sums of rows.

    CHAINED: as chains of multiply-adds, because the tree of tl.sum does not fuse every product: 11 instructions for 8.
    """
    if SHAPE.CHAINED > 0:
        return chain(None, a, b, SHAPE.ROWS, SHAPE.KEYS, SHAPE.CHAINED)
    else:
        return summed(a * b, SHAPE)


@triton.jit
def with_distance(w, ROWS: tl.constexpr, KEYS: tl.constexpr):
    """Returns sums of pairs of w [ROWS, KEYS], and of w times the distance from the pair's last key. The first half of
    the keys is at the distance of half a tile, so distances take little more than additions."""
    first, last = split_halves(w, ROWS, KEYS)
    if KEYS == LANES:
        return first + last, first
    else:
        first, first_distance = with_distance(first, ROWS, KEYS // 2)
        last, last_distance = with_distance(last, ROWS, KEYS // 2)
        return first + last, first * (KEYS // 2) + (first_distance + last_distance)


@triton.jit
def farther(state, keys):
    """Moves the last key that distances count from by `keys` keys."""
    return RowState(state.m, state.s0, state.s1, state.s1p, state.s2, state.s3 + keys * state.s0)


@triton.jit
def from_own(state, own_key, stop):
    """Converts distances from the last key of each sum before `stop` to distances from each row's own key."""
    to_stop = (own_key - stop).to(tl.float32)[:, None]
    to_last = (tl.arange(0, PAIRS) * -2 + (LANES - 1)).to(tl.float32)[None, :]
    return RowState(
        state.m, state.s0, state.s1, state.s1p, state.s2, state.s3 + (to_stop + to_last) * state.s0
    )


@triton.jit
def add_moments(
    state, t, w, own_key, key, first_key, SHAPE: tl.constexpr, WANTED: tl.constexpr, FROM_LAST: tl.constexpr
):  # fmt: skip
    """Adds a tile of weights w = 2^t to the sums. own_key: the key at each row's own position. t is clamped to LEAST if
    a logit may be -inf, because 0 times -inf is NaN. FROM_LAST: distances count from the tile's last keys."""
    s0, s1, s1p, s2, s3 = state.s0, state.s1, state.s1p, state.s2, state.s3
    if FROM_LAST:
        of_tile, distance = with_distance(w, SHAPE.ROWS, SHAPE.KEYS)
        s0 += of_tile
        s3 += distance
    else:
        s0 += summed(w, SHAPE)
    if WANTED.MOMENTS >= 1:
        s1 += summed_products(w, t, SHAPE)
    if WANTED.MOMENTS >= 2:
        s1p += summed_products(w * t, t, SHAPE)
    if WANTED.COLLISION >= 0:
        s2 += summed_products(w, w, SHAPE)
    if WANTED.DISTANCE >= 0 and not FROM_LAST:
        away = distances(own_key, key, first_key, False)
        if SHAPE.CHAINED == PAIRS:
            # Computed from parts of w, because splitting `away` itself changes its layout: 81 more instructions.
            s3 += summed(w * away, SHAPE)
        else:
            s3 += summed_products(w, away, SHAPE)
    return RowState(state.m, s0, s1, s1p, s2, s3)


@triton.jit
def of_rows(state):
    """Returns the sums of rows, [rows]."""
    return RowState(
        state.m, tl.sum(state.s0, 1), tl.sum(state.s1, 1), tl.sum(state.s1p, 1), tl.sum(state.s2, 1), tl.sum(state.s3, 1)
    )
