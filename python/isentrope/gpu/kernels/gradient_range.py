"""Bounds of the gradients of logits, by which float16 products are scaled by 2^lift to stay in range.

The lift is fixed before the first tile, because changing it later would require rescaling sums. A row's lift follows
from a bound (gradient_rows.bound_of) over the keys that structural masks leave it. Keys that a boolean mask or a bias
hides from every row count as 0 (`norms`); keys hidden from some rows only count for all. The bound is scaled to 2^14
... 2^15. Numbers below 2^-29 of it are denormal, with errors up to 2^-40 of it; in float32, do.v loses 2^-24 of it. A
tile of keys uses the largest bound of all rows that it meets."""

from __future__ import annotations

import triton
import triton.language as tl

from isentrope.gpu.kernels.tile import full

NORMS = tl.constexpr(1024)
EDGE = tl.constexpr(32)
MOST = tl.constexpr(80)


@triton.jit
def finite_norms(norms, key, inside):
    """Returns the norms, 0 for non-finite values: rows that see these have no gradient whatever their lift is."""
    norm = tl.load(norms + key, mask=inside, other=0.0)
    return tl.where(norm < float("inf"), norm, 0.0)


@triton.jit
def largest_on_edge(most, norms, begin, end, dilation, first, last):
    """Updates the largest norm by keys that only some rows see."""
    for start in range(first, last, EDGE):
        key = start + tl.arange(0, EDGE)
        norm = finite_norms(norms, key, key < last)
        past = key[None, :] - begin[:, None]
        seen = (past >= 0) & (key[None, :] < end[:, None]) & (past % dilation == 0)
        most = tl.maximum(most, tl.max(tl.where(seen, norm[None, :], 0.0), 1))
    return most


@triton.jit
def largest_norm(norms, begin, end, dilation, rows, ROWS: tl.constexpr):
    """Returns the largest norm of each row's keys begin, begin + dilation, ... below end."""
    far = 2147483647
    some = rows & (end > begin)
    first, last = tl.min(tl.where(some, begin, far), 0), tl.max(tl.where(some, end, 0), 0)
    all_from = tl.max(tl.where(some, begin, 0), 0)
    all_from = tl.where(dilation > 1, last, all_from)
    all_to = tl.minimum(tl.min(tl.where(some, end, far), 0), last)
    most = largest_on_edge(full(ROWS, 0.0, tl.float32), norms, begin, end, dilation, first, all_from)
    most = largest_on_edge(most, norms, begin, end, dilation, tl.maximum(all_from, all_to), last)
    of_all = full(NORMS, 0.0, tl.float32)
    for start in range(all_from, all_to, NORMS):
        key = start + tl.arange(0, NORMS)
        of_all = tl.maximum(of_all, finite_norms(norms, key, key < all_to))
    return tl.maximum(most, tl.max(of_all, 0))


@triton.jit
def largest_bound(bounds, queries, first_head, heads, first, last):
    """Returns the largest bound of rows first ... last - 1 of some heads."""
    most = full(NORMS, 0.0, tl.float32)
    for head in range(first_head, first_head + heads):
        for start in range(first, last, NORMS):
            row = start + tl.arange(0, NORMS)
            bound = tl.load(bounds + tl.cast(head, tl.int64) * queries + row, mask=row < last, other=0.0)
            most = tl.maximum(most, tl.where(bound < float("inf"), bound, 0.0))
    return tl.max(most, 0)


@triton.jit
def exponent(x):
    """Returns e with 2^e <= x < 2^(e + 1), clamped to +-MOST."""
    power = ((x.to(tl.int32, bitcast=True) >> 23) & 0xFF) - 127
    return tl.minimum(tl.maximum(power, -MOST), MOST).to(tl.float32)
