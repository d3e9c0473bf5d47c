"""Which keys the rows of a range see, in positions of the whole sequence: what must travel, and what is computed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from isentrope._core.call import Call
from isentrope._core.library import refuse_unknown
from isentrope.distributed.layout import Range, joined, overlap

# The arguments of the operators: those that say which keys a row sees, here in a Mask or in the place of a Segment;
# those that hide nothing; and those that no call over several ranks takes.
_KNOWN = {
    "causal", "window_left", "window_right", "chunk_size", "prefix_keys", "key_begin", "key_end", "cu_seqlens_q",
    "cu_seqlens_k", "query_offset", "key_offset", "sequence_keys",
    "q", "k", "v", "sinks", "rule", "soft_cap", "compiled_scale", "compiled_soft_cap",
    "dilation", "lambda_", "attn_mask", "bias", "dropout_p", "dropout_seed",
}  # fmt: skip
refuse_unknown("isentrope.distributed: visibility.py", "argument", Call._fields, _KNOWN)


class Sequence(NamedTuple):
    """What the sequences of a batch may differ in."""

    begin: int
    end: int
    """Keys begin, ..., end - 1 are no padding."""
    prefix: int
    """Keys that all rows see, from `begin` on, or from the beginning of each document."""


class Mask(NamedTuple):
    """The structural masks of a call, as numbers."""

    causal: bool
    left: int
    right: int
    chunk: int
    """Rows of a chunk; 0: no chunks."""
    length: int
    """Rows of the whole sequence."""
    sequences: tuple[Sequence, ...]
    """Those of the batch, each kind once."""
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


def _document(mask: Mask, sequence: Sequence, row: int) -> Range:
    """The keys among which a row's are, and from the first of which prefix and chunks are counted."""
    if mask.documents is None:
        return sequence.begin, sequence.end
    after = bisect_right(mask.documents, row)
    return mask.documents[after - 1], mask.documents[after]


def _seen(mask: Mask, sequence: Sequence, queries: Range) -> Range:
    """The keys of one sequence that some row of `queries` sees: those of rows next to one another are next to one
    another, or shared."""
    first, last = queries[0], queries[1] - 1
    (begin, _), (start, stop) = _document(mask, sequence, first), _document(mask, sequence, last)
    origin, end = begin, stop
    if mask.causal:
        end = min(end, last + 1)
    if mask.left >= 0:
        begin = max(begin, first - mask.left)
    if mask.right >= 0:
        end = min(end, last + mask.right + 1)
    end = max(end, min(start + sequence.prefix, stop))
    if mask.chunk > 0:
        begin = max(begin, first - (first - origin) % mask.chunk)
        end = min(end, last - (last - start) % mask.chunk + mask.chunk)
    return begin, max(begin, end)


def seen_keys(mask: Mask, queries: Range) -> Range:
    """The smallest range that has every key which some row of `queries` sees in some sequence, and those at the rows'
    own places: a row that sees nothing but padding has a scale all the same, which a call must tell."""
    seen = [queries, *(_seen(mask, sequence, queries) for sequence in mask.sequences)]
    seen = [part for part in seen if part[0] < part[1]]
    return min(begin for begin, _ in seen), max(end for _, end in seen)


def needed_keys(mask: Mask, queries: list[Range], keys: list[Range]) -> list[Range]:
    """Of `keys`, the ranges of those that some row of `queries` sees in some sequence, in order."""
    seen = joined([_seen(mask, sequence, piece) for sequence in mask.sequences for piece in queries])
    return [part for held in keys for range_ in seen if (part := overlap(held, range_))[0] < part[1]]


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
