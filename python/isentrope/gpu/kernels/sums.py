"""What a row keeps of the tiles of keys that it has met, and how the next tile joins it: softmax with its moments.

The row state's algebra is in docs/contributors/row-state.md. While tiles join it, each of a row's sums is of every eighth key, or where
sums are CHAINED of two neighbours of every eight: so the scores of a row lie among the threads of a tensor core's product, and no sum has
to travel between them before the last tile.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from isentrope.gpu.kernels.softmax import LEAST, distances
from isentrope.gpu.kernels.tile import each, zeros

LANES = tl.constexpr(8)
PAIRS = tl.constexpr(4)


class RowState(NamedTuple):
    """Largest logit m, and with t = logit - m: sum w, sum w t, sum w t^2, sum w^2, sum w |i - j|, as far as wanted.

    Where no row sees a key behind its own, and a tile hides nothing, distances count from the last of the keys so far that a
    sum has (`farther`), until `from_own` moves them to the row. All of these terms are at least 0: none cancels another."""

    m: tl.tensor
    s0: tl.tensor
    s1: tl.tensor
    s1p: tl.tensor
    s2: tl.tensor
    s3: tl.tensor


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
    """Sums of different keys about the same maximum."""
    return RowState(a.m, a.s0 + b.s0, a.s1 + b.s1, a.s1p + b.s1p, a.s2 + b.s2, a.s3 + b.s3)


@triton.jit
def halves(x, ROWS: tl.constexpr, KEYS: tl.constexpr):
    """[ROWS, KEYS] cut in the middle; no more than LANES keys into the first and the second of each two neighbours."""
    if KEYS > LANES:
        return tl.split(tl.permute(tl.reshape(x, [ROWS, 2, KEYS // 2]), (0, 2, 1)))
    else:
        return tl.split(tl.reshape(x, [ROWS, KEYS // 2, 2]))


@triton.jit
def no_sums(SHAPE: tl.constexpr):
    return zeros(SHAPE.ROWS, PAIRS if SHAPE.CHAINED == PAIRS else LANES)


@triton.jit
def empty_state(m, SHAPE: tl.constexpr):
    """State of rows without keys. m: origin that their weights have at least."""
    zero = no_sums(SHAPE)
    return RowState(each(SHAPE.ROWS, m, tl.float32), zero, zero, zero, zero, zero)


@triton.jit
def like_sums(x, SHAPE: tl.constexpr):
    """Numbers of rows, laid out like their sums: pairs by way of their keys, or Triton would move sums between threads."""
    if SHAPE.CHAINED == PAIRS:
        first, _ = halves(tl.broadcast_to(x[:, None], [SHAPE.ROWS, LANES]), SHAPE.ROWS, LANES)
        return first
    else:
        return x[:, None]


@triton.jit
def summed(x, SHAPE: tl.constexpr):
    """[ROWS, KEYS] as sums of rows."""
    sums = tl.sum(tl.reshape(x, [SHAPE.ROWS, SHAPE.KEYS // LANES, LANES]), 1)
    if SHAPE.CHAINED == PAIRS:
        first, second = halves(sums, SHAPE.ROWS, LANES)
        return first + second
    else:
        return sums


@triton.jit
def chain(sums, a, b, ROWS: tl.constexpr, KEYS: tl.constexpr, CHAINED: tl.constexpr):
    """Products of [ROWS, KEYS] join sums [ROWS, CHAINED] one behind the other; None: the first begins them, which a higher
    moment computes as well."""
    if KEYS == CHAINED:
        if sums is None:
            return a * b
        else:
            return sums + a * b
    else:
        first_a, last_a = halves(a, ROWS, KEYS)
        first_b, last_b = halves(b, ROWS, KEYS)
        sums = chain(sums, first_a, first_b, ROWS, KEYS // 2, CHAINED)
        return chain(sums, last_a, last_b, ROWS, KEYS // 2, CHAINED)


@triton.jit
def summed_products(a, b, SHAPE: tl.constexpr):
    """a times b, [ROWS, KEYS], as sums of rows. CHAINED: one behind the other, for a tree, which tl.sum makes, does not
    fuse every product with an addition: 11 instructions for 8 of them."""
    if SHAPE.CHAINED > 0:
        return chain(None, a, b, SHAPE.ROWS, SHAPE.KEYS, SHAPE.CHAINED)
    else:
        return summed(a * b, SHAPE)


@triton.jit
def with_distance(w, ROWS: tl.constexpr, KEYS: tl.constexpr):
    """Of w [ROWS, KEYS]: pairs' sums, and those of w times how far the last key of a pair lies behind. The first half of the
    keys lies as far before the last one as there are keys in it, so that distances take little more than additions."""
    first, last = halves(w, ROWS, KEYS)
    if KEYS == LANES:
        return first + last, first
    else:
        first, first_distance = with_distance(first, ROWS, KEYS // 2)
        last, last_distance = with_distance(last, ROWS, KEYS // 2)
        return first + last, first * (KEYS // 2) + (first_distance + last_distance)


@triton.jit
def farther(state, keys):
    """The last key that distances count from lies so many keys further on."""
    return RowState(state.m, state.s0, state.s1, state.s1p, state.s2, state.s3 + keys * state.s0)


@triton.jit
def from_own(state, own_key, stop):
    """Distances from each row's own key, where they were from the last key of each sum before `stop`."""
    to_stop = (own_key - stop).to(tl.float32)[:, None]
    to_last = (tl.arange(0, PAIRS) * -2 + (LANES - 1)).to(tl.float32)[None, :]
    return RowState(
        state.m, state.s0, state.s1, state.s1p, state.s2, state.s3 + (to_stop + to_last) * state.s0
    )


@triton.jit
def add_moments(
    state, t, w, own_key, key, first_key, SHAPE: tl.constexpr, WANTED: tl.constexpr, FROM_LAST: tl.constexpr
):  # fmt: skip
    """A tile of weights w = 2^t joins the sums. own_key: the key at each row's own position. 0 times -inf is NaN: where
    a logit may be -inf, t is LEAST at least. FROM_LAST: distances count from the tile's last keys."""
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
            # Cut on its own, `away` is laid out otherwise than w: 81 instructions more to bring it back.
            s3 += summed(w * away, SHAPE)
        else:
            s3 += summed_products(w, away, SHAPE)
    return RowState(state.m, s0, s1, s1p, s2, s3)


@triton.jit
def of_rows(state):
    """The sums of rows, [rows]."""
    return RowState(
        state.m, tl.sum(state.s0, 1), tl.sum(state.s1, 1), tl.sum(state.s1p, 1), tl.sum(state.s2, 1), tl.sum(state.s3, 1)
    )
