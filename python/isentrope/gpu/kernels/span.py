"""Selects the tiles that a program visits: those that some of its rows or keys see, and those that hide nothing."""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl


class Span(NamedTuple):
    """Tiles first ... last - 1, of which full_first ... full_last - 1 hide nothing."""

    first: tl.tensor
    full_first: tl.tensor
    full_last: tl.tensor
    last: tl.tensor


@triton.jit
def all_masked(span):
    """Returns the span with every tile counted as masked."""
    return Span(span.first, span.last, span.last, span.last)


@triton.jit
def program(tiles):
    """Returns this program's tile, sequence and head, and the numbers of those. All are on one grid axis, because
    others end at 65535."""
    return tl.program_id(0) % tiles, tl.program_id(0) // tiles, tl.num_programs(0) // tiles


@triton.jit
def program_from_the_end(tiles):
    """Same, with the last tiles first, because later causal rows see more keys and programs started last should be
    short. Sequences and heads are consecutive, so that neighbours read the same keys."""
    tile, lane, lanes = program(tiles)
    return tiles - 1 - tile, lane, lanes


@triton.jit
def span_of_keys(view, full_end, KEYS: tl.constexpr):
    """Returns the tiles of KEYS keys that some row of a query block sees, and those that hide nothing and end by
    full_end."""
    some = view.rows & (view.end > view.begin)
    far = 2147483647
    first = tl.min(tl.where(some, view.begin, far), 0) // KEYS
    last = tl.cdiv(tl.max(tl.where(some, view.end, 0), 0), KEYS)
    first = tl.minimum(first, last)
    full_first = tl.maximum(first, tl.cdiv(tl.max(tl.where(some, view.begin, 0), 0), KEYS))
    full_last = tl.minimum(last, tl.min(tl.where(some, full_end, far), 0) // KEYS)
    nothing = full_last <= full_first
    return Span(first, tl.where(nothing, last, full_first), tl.where(nothing, last, full_last), last)


@triton.jit
def span_of_query_blocks(tiles, count, first_key, last_key):
    """Returns the query blocks with rows that see some of these keys, and those whose rows all see all of them.

    tiles: summary of each query block from rows_kernel."""
    far = 2147483647
    first, last, full_first, full_last, full = count, 0, count, 0, 0
    for start in range(0, count, 64):
        block = start + tl.arange(0, 64)
        there = block < count
        least_begin = tl.load(tiles + block * 4, mask=there, other=far)
        largest_end = tl.load(tiles + block * 4 + 1, mask=there, other=0)
        largest_begin = tl.load(tiles + block * 4 + 2, mask=there, other=far)
        least_end = tl.load(tiles + block * 4 + 3, mask=there, other=0)
        some = (largest_end > first_key) & (least_begin < last_key)
        all_of_them = (largest_begin <= first_key) & (least_end >= last_key)
        first = tl.minimum(first, tl.min(tl.where(some, block, far), 0))
        last = tl.maximum(last, tl.max(tl.where(some, block + 1, 0), 0))
        full_first = tl.minimum(full_first, tl.min(tl.where(all_of_them, block, far), 0))
        full_last = tl.maximum(full_last, tl.max(tl.where(all_of_them, block + 1, 0), 0))
        full += tl.sum(all_of_them.to(tl.int32), 0)
    first = tl.minimum(first, last)
    apart = (full == 0) | (full != full_last - full_first)
    return Span(first, tl.where(apart, last, full_first), tl.where(apart, last, full_last), last)


@triton.jit(do_not_specialize=["queries", "keys"])
def spans_kernel(tiles, spans, queries, keys, ROWS: tl.constexpr, KEYS: tl.constexpr):
    """Program (batch x tile of keys): stores spans int32 [batch, tiles of keys, 4], for key_gradient_kernel. A separate
    kernel, because a loop over numbers that the compiler cannot prove uniform keeps its counter in registers of each
    thread."""
    tile, batch, _ = program(tl.cdiv(keys, KEYS))
    count = tl.cdiv(queries, ROWS)
    first_key = tile * KEYS
    span = span_of_query_blocks(tiles + batch.to(tl.int64) * count * 4, count, first_key, tl.minimum(first_key + KEYS, keys))
    at = spans + tl.program_id(0).to(tl.int64) * 4
    tl.store(at, span.first)
    tl.store(at + 1, span.full_first)
    tl.store(at + 2, span.full_last)
    tl.store(at + 3, span.last)


@triton.jit
def load_span(spans, index, MASKED: tl.constexpr):
    """Loads a span stored by spans_kernel. MASKED: all of its tiles count as masked."""
    at = spans + index * 4
    first, last = tl.load(at, volatile=True), tl.load(at + 3, volatile=True)
    if MASKED:
        return Span(first, last, last, last)
    else:
        return Span(first, tl.load(at + 1, volatile=True), tl.load(at + 2, volatile=True), last)


@triton.jit
def some_sees(rows, begin, end, first_key, SHAPE: tl.constexpr):
    """Returns whether one of these rows sees one of a tile's keys. Dilated rows may skip a tile within their span that
    is narrower than their steps."""
    first = tl.maximum(begin, first_key)
    past = (first - begin) % SHAPE.DILATION
    to_next = tl.where(past > 0, SHAPE.DILATION - past, 0)
    seen = rows & (to_next < tl.minimum(end, first_key + SHAPE.KEYS) - first)
    return tl.max(seen.to(tl.int32), 0) > 0


@triton.jit
def sees_keys(tile, block, SHAPE: tl.constexpr):
    """Returns whether some row of a query block sees a key of a tile of keys."""
    view = block.view
    return some_sees(view.rows, view.begin, view.end, tile * SHAPE.KEYS, SHAPE)


@triton.jit
def share_of(span, share, shares):
    """Returns one of several shares of a span's tiles. All shares are of equal size, except that the last ones may be
    smaller."""
    tiles = tl.cdiv(span.last - span.first, shares)
    first = span.first + share * tiles
    last = tl.maximum(first, tl.minimum(span.last, first + tiles))
    full_first = tl.minimum(tl.maximum(span.full_first, first), last)
    return Span(first, full_first, tl.maximum(tl.minimum(span.full_last, last), full_first), last)


@triton.jit
def count_of(span, MASKED: tl.constexpr):
    """Returns the number of tiles that hide nothing or, with MASKED, of the others, before and after those."""
    full = span.full_last - span.full_first
    if MASKED:
        return span.last - span.first - full
    else:
        return full


@triton.jit
def tile_at(step, span, MASKED: tl.constexpr):
    """Returns the tile at a step among those that count_of counts."""
    if MASKED:
        before = span.first + step
        return tl.where(before < span.full_first, before, before + span.full_last - span.full_first)
    else:
        return span.full_first + step


@triton.jit
def visit(
    span, sees: tl.constexpr, where, process: tl.constexpr, found, given, SHAPE: tl.constexpr, STAGES: tl.constexpr, MASKED: tl.constexpr
):  # fmt: skip
    """Visits the tiles of a span that hide nothing or, with MASKED, the others. Returns `found` as process(tile, found,
    *where, *given, SHAPE, MASKED) leaves it, tile after tile. Skips those without sees(tile, *where, SHAPE), which only a wide dilation makes."""
    for step in tl.range(0, count_of(span, MASKED), num_stages=STAGES):
        tile = tile_at(step, span, MASKED)
        if SHAPE.DILATION <= SHAPE.KEYS or sees(tile, *where, SHAPE):
            found = process(tile, found, *where, *given, SHAPE, MASKED)
    return found


@triton.jit
def visit_all(span, sees: tl.constexpr, where, process: tl.constexpr, found, given, SHAPE: tl.constexpr):
    """Visits all tiles of a span: those that hide nothing, if a call has any, then the others."""
    if not SHAPE.MASKED:
        found = visit(span, sees, where, process, found, given, SHAPE, SHAPE.STAGES, False)
    return visit(span, sees, where, process, found, given, SHAPE, SHAPE.STAGES, True)
