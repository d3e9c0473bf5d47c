"""Which keys the rows of a range see, in positions of the whole sequence: what must travel, and what is computed."""

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
    """Queries and keys of one call of the operator, and their place in the sequence that the call declares."""

    queries: Range
    keys: Range
    origin: int
    """The position, of the whole sequence, that is the call's position 0."""
    length: int
    """Keys of the sequence whose length the rule uses."""
    documents: tuple[int, ...] | None = None
    """Documents that lie in the call as a whole; then queries are keys, and each begins at its own position 0."""


def keys_seen(masks: Masks, batch: int, length: int, pieces: list[Range]) -> list[list[Range]]:
    """Of each piece and each sequence of the batch, the keys from the first to the last that some of its rows sees. The lists
    of the masks lie on the CPU."""
    rows = torch.empty(()).expand(batch, 1, length, 1)
    call = Call(rows, rows, rows, **masks._asdict())
    found = CHECKED.keys_seen(*call, torch.tensor(pieces, dtype=torch.int64).view(-1, 2))
    return [[(begin, end) for begin, end in piece] for piece in found.transpose(0, 1).tolist()]


def needed_keys(seen: list[Range], keys: list[Range]) -> list[Range]:
    """Of `keys`, the ranges of those that are seen, in order."""
    return [part for held in keys for range_ in joined(seen) if (part := overlap(held, range_))[0] < part[1]]


def spanned(queries: Range, seen: list[Range]) -> Range:
    """The smallest range that has the keys which the rows of `queries` see, and those at their own places: a row that
    sees nothing but padding has a scale all the same, which a call must tell."""
    some = [queries, *(part for part in seen if part[0] < part[1])]
    return min(begin for begin, _ in some), max(end for _, end in some)


def segments(documents: tuple[int, ...] | None, length: int, queries: Range, keys: Range) -> Iterator[Segment]:
    """The calls that give the rows of `queries` what they see of `keys`, of a sequence of so many.

    Without documents one call. With documents one for all that lie within both ranges, and one for each of those that
    are cut: the operator's offsets are the same for all documents of a call.
    """
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
        # Documents within two ranges follow one another, but empty ones, which have no rows.
        starts = tuple(begin - whole[0][0] for begin, _ in whole) + (whole[-1][1] - whole[0][0],)
        span = (whole[0][0], whole[-1][1])
        yield Segment(span, span, span[0], 0, starts)
