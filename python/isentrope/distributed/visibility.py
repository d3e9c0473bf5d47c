"""Which keys the rows of a range see, in positions of the whole sequence: what must travel, and what is computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from isentrope.distributed.layout import Range, overlap


class Mask(NamedTuple):
    """The structural masks of a call, as numbers."""

    causal: bool
    left: int
    right: int
    length: int
    """Rows of the whole sequence."""
    padding: Range
    """Keys that are no padding in some sequence of the batch."""
    documents: tuple[int, ...] | None
    """Where documents begin, and the end: 0, ..., length."""


class Segment(NamedTuple):
    """Queries and keys of one call of the operator, and where they lie in the sequence the call is told of."""

    queries: Range
    keys: Range
    origin: int
    """The position, of the whole sequence, that is the call's position 0."""
    length: int
    """Keys of the sequence that the rule is told of."""
    documents: tuple[int, ...] | None = None
    """Documents that lie in the call as a whole; then queries are keys, and each begins at its own position 0."""


def seen_keys(mask: Mask, queries: Range) -> Range:
    """The smallest range that has every key which some row of `queries` sees, padding included."""
    first, last = queries[0], queries[1] - 1
    begin, end = 0, mask.length
    if mask.causal:
        end = min(end, last + 1)
    if mask.left >= 0:
        begin = max(begin, first - mask.left)
    if mask.right >= 0:
        end = min(end, last + mask.right + 1)
    if mask.documents is not None:
        starts = mask.documents
        begin = max(begin, max(start for start in starts if start <= first))
        end = min(end, min(start for start in starts if start > last))
    return begin, max(begin, end)


def needed_keys(mask: Mask, queries: list[Range], keys: list[Range]) -> list[Range]:
    """Of each range of `keys`, the part that has all that some range of `queries` sees; ranges without are left out."""
    found = []
    for held in keys:
        seen = [overlap(overlap(held, mask.padding), seen_keys(mask, piece)) for piece in queries]
        seen = [part for part in seen if part[0] < part[1]]
        if seen:
            found.append((min(part[0] for part in seen), max(part[1] for part in seen)))
    return found


def segments(mask: Mask, queries: Range, keys: Range) -> Iterator[Segment]:
    """The calls that give the rows of `queries` what they see of `keys`.

    Without documents one call. With documents one for all that lie within both ranges, and one for each of those that
    are cut: the operator's offsets are the same for all documents of a call.
    """
    if mask.documents is None:
        yield Segment(queries, keys, 0, mask.length)
        return
    whole: list[Range] = []
    for begin, end in zip(mask.documents, mask.documents[1:]):
        rows, seen = overlap((begin, end), queries), overlap((begin, end), keys)
        if rows[0] == rows[1] or seen[0] == seen[1]:
            continue
        if rows == seen == (begin, end):
            whole.append((begin, end))
        else:
            yield Segment(rows, seen, begin, end - begin)
    if whole:
        # Documents within two ranges follow one another, but empty ones, which have no rows.
        starts = tuple(begin - whole[0][0] for begin, _ in whole) + (whole[-1][1] - whole[0][0],)
        span = (whole[0][0], whole[-1][1])
        yield Segment(span, span, span[0], 0, starts)
