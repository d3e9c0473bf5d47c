"""Computes which keys the rows of a range see, in positions of the whole sequence."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import torch

from isentrope._core.call import Call
from isentrope._core.library import CHECKED
from isentrope._core.masks import Masks
from isentrope.distributed.layout import Range, joined, overlap


class Segment(NamedTuple):
    """Queries and keys of one operator call, and their place in the sequence."""

    queries: Range
    keys: Range
    origin: int
    """The position, of the whole sequence, that is the call's position 0."""
    length: int
    """Keys of the sequence whose length the rule uses."""
    documents: tuple[int, ...] | None = None
    """Documents that lie in the call as a whole; then queries are keys, and each begins at its own position 0."""


def keys_seen(masks: Masks, batch: int, length: int, pieces: list[Range]) -> list[list[Range]]:
    """Returns the keys from the first to the last that some row of a piece sees, for each piece and sequence of the
    batch. The lists of the masks must be on the CPU."""
    rows = torch.empty(()).expand(batch, 1, length, 1)
    call = Call(rows, rows, rows, **masks._asdict())
    found = CHECKED.keys_seen(*call, torch.tensor(pieces, dtype=torch.int64).view(-1, 2))
    return [[(begin, end) for begin, end in piece] for piece in found.transpose(0, 1).tolist()]


def needed_keys(seen: list[Range], keys: list[Range]) -> list[Range]:
    """Returns the ranges of `keys` that are seen, in order."""
    return [part for stored in keys for range_ in joined(seen) if (part := overlap(stored, range_))[0] < part[1]]


def spanned(queries: Range, seen: list[Range]) -> Range:
    """Returns the smallest range with the keys that the rows of `queries` see and those at their own positions. A row
    that sees only padding still has a scale, so its position must be within the call."""
    some = [queries, *(part for part in seen if part[0] < part[1])]
    return min(begin for begin, _ in some), max(end for _, end in some)


def segments(documents: tuple[int, ...] | None, length: int, queries: Range, keys: Range) -> Iterator[Segment]:
    """Yields the calls that compute the rows of `queries` over `keys` in a sequence of that length. Without documents
    there is one call. With documents there is one for all that lie within both ranges. Each document that is cut has
    its own, because the operator's offsets are the same for all documents of a call."""
    if documents is None:
        yield Segment(queries, keys, 0, length)
        return
    whole: list[Range] = []
    for begin, end in pairwise(documents):
        rows, seen = overlap((begin, end), queries), overlap((begin, end), keys)
        if rows[0] == rows[1] or seen[0] == seen[1]:
            continue
        if rows == seen == (begin, end):
            whole.append((begin, end))
        else:
            yield Segment(rows, seen, begin, end - begin)
    if whole:
        # Documents within two ranges are consecutive, except empty ones, which have no rows.
        starts = tuple(begin - whole[0][0] for begin, _ in whole) + (whole[-1][1] - whole[0][0],)
        span = (whole[0][0], whole[-1][1])
        yield Segment(span, span, span[0], 0, starts)
