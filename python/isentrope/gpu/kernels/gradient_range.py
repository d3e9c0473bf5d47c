"""How large gradients of logits can become, which products of float16 must know: those leave its range, so they are taken
2^lift times larger. The lift has to be known before the first tile, or else sums would have to change theirs with it.

Of a row it follows from a bound (gradient_rows.bound_of), by the keys that structural masks leave it.
Keys that a boolean mask or a bias hides from every row count as 0 (`norms`); those hidden from some rows alone count for all.
The bound comes to lie at 2^14 to 2^15. What is 2^-29 of that is a denormal number, off by up to 2^-40 of it; in float32, do.v has
2^-24 of it to lose. A tile of keys takes the largest bound of the rows of the query blocks that it meets, so there it is more than
each key's rows alone say, and of what is denormal the last bits are not theirs alone."""

from __future__ import annotations

import triton
import triton.language as tl

from isentrope.gpu.kernels.tile import each

NORMS = tl.constexpr(1024)
EDGE = tl.constexpr(32)
MOST = tl.constexpr(80)


@triton.jit
def finite_norms(norms, key, inside):
    """0 of values that are no numbers: rows that see these have no gradient whatever their lift is."""
    norm = tl.load(norms + key, mask=inside, other=0.0)
    return tl.where(norm < float("inf"), norm, 0.0)


@triton.jit
def largest_on_edge(most, norms, begin, end, dilation, first, last):
    """Where rows see different keys."""
    for start in range(first, last, EDGE):
        key = start + tl.arange(0, EDGE)
        norm = finite_norms(norms, key, key < last)
        past = key[None, :] - begin[:, None]
        seen = (past >= 0) & (key[None, :] < end[:, None]) & (past % dilation == 0)
        most = tl.maximum(most, tl.max(tl.where(seen, norm[None, :], 0.0), 1))
    return most


@triton.jit
def largest_norm(norms, begin, end, dilation, rows, ROWS: tl.constexpr):
    """Of each row's keys begin, begin + dilation, ... below end."""
    far = 2147483647
    some = rows & (end > begin)
    first, last = tl.min(tl.where(some, begin, far), 0), tl.max(tl.where(some, end, 0), 0)
    all_from = tl.max(tl.where(some, begin, 0), 0)
    all_from = tl.where(dilation > 1, last, all_from)
    all_to = tl.minimum(tl.min(tl.where(some, end, far), 0), last)
    most = largest_on_edge(each(ROWS, 0.0, tl.float32), norms, begin, end, dilation, first, all_from)
    most = largest_on_edge(most, norms, begin, end, dilation, tl.maximum(all_from, all_to), last)
    of_all = each(NORMS, 0.0, tl.float32)
    for start in range(all_from, all_to, NORMS):
        key = start + tl.arange(0, NORMS)
        of_all = tl.maximum(of_all, finite_norms(norms, key, key < all_to))
    return tl.maximum(most, tl.max(of_all, 0))


@triton.jit
def largest_bound(bounds, queries, first_head, heads, first, last):
    """Of rows first ... last - 1 of some heads."""
    most = each(NORMS, 0.0, tl.float32)
    for head in range(first_head, first_head + heads):
        for start in range(first, last, NORMS):
            row = start + tl.arange(0, NORMS)
            bound = tl.load(bounds + tl.cast(head, tl.int64) * queries + row, mask=row < last, other=0.0)
            most = tl.maximum(most, tl.where(bound < float("inf"), bound, 0.0))
    return tl.max(most, 0)


@triton.jit
def exponent(x):
    """2^exponent <= x < 2^(exponent + 1), as far as that lies within +-MOST."""
    power = ((x.to(tl.int32, bitcast=True) >> 23) & 0xFF) - 127
    return tl.minimum(tl.maximum(power, -MOST), MOST).to(tl.float32)
