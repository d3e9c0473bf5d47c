"""Which rows a rank holds, and which keys they need."""

import collections
import importlib
import itertools

import pytest
import torch

from isentrope._core import call
from isentrope.distributed import visibility
from isentrope.distributed.layout import joined, local_slices, pieces
from isentrope.distributed.visibility import Mask, Sequence, needed_keys, seen_keys, segments


def test_an_argument_that_nobody_here_knows_is_refused(monkeypatch):
    more = collections.namedtuple("Call", [*call.Call._fields, "stride_of_keys"])
    monkeypatch.setattr(call, "Call", more)
    with pytest.raises(ImportError, match="must know every argument; got stride_of_keys"):
        importlib.reload(visibility)


@pytest.mark.parametrize("layout", ["contiguous", "zigzag"])
def test_every_row_has_one_rank(layout):
    for length, ranks in itertools.product(range(20), range(1, 9)):
        held = pieces(length, ranks, layout)
        rows = [row for ranges in held for begin, end in ranges for row in range(begin, end)]
        assert sorted(rows) == list(range(length))
        assert all(begin < end for ranges in held for begin, end in ranges)


def test_contiguous_is_cut_as_torch_chunk_does():
    assert pieces(5, 4, "contiguous") == [[(0, 2)], [(2, 4)], [(4, 5)], []]


def test_zigzag_has_an_early_and_a_late_piece():
    assert pieces(8, 2, "zigzag") == [[(0, 2), (6, 8)], [(2, 6)]]
    seen = [sum(row + 1 for begin, end in held for row in range(begin, end)) for held in pieces(64, 4, "zigzag")]
    assert len(set(seen)) == 1


def test_rows_are_found_where_they_lie():
    assert local_slices([(0, 2), (6, 8)], [(7, 8), (0, 2)]) == [slice(3, 4), slice(0, 2)]


def sees(mask, sequence):
    """Which keys each row sees, one condition after the other: bool [rows, keys]."""
    rows, keys = torch.arange(mask.length)[:, None], torch.arange(mask.length)
    documents = torch.tensor(mask.documents or (0, mask.length))
    same = torch.bucketize(rows, documents, right=True) == torch.bucketize(keys, documents, right=True)
    first = sequence.begin if mask.documents is None else documents[torch.bucketize(rows, documents, right=True) - 1]
    in_order = torch.ones_like(same)
    if mask.causal:
        in_order &= keys <= rows
    if mask.right >= 0:
        in_order &= keys <= rows + mask.right
    seen = same & (keys >= sequence.begin) & (keys < sequence.end) & (in_order | (keys < first + sequence.prefix))
    if mask.left >= 0:
        seen &= keys >= rows - mask.left
    if mask.chunk:
        seen &= (keys - first) // mask.chunk == (rows - first) // mask.chunk
    return seen


def masks(length):
    whole = (0, length)
    paddings = [(whole,), ((2, length - 1),), ((3, 3),), (whole, (2, length - 1)), ((5, length), (3, 3), (0, 4))]
    documents = [None, (0, length), tuple(sorted({0, 1, length // 2, length}))]
    for causal, left, right, chunk, prefix, starts, padded in itertools.product(
        (False, True), (-1, 0, 2), (-1, 0, 3), (0, 1, 5), (0, 4, 99), documents, paddings
    ):
        # What no call may have together.
        if (prefix and (chunk or left >= 0)) or (starts and padded[0] != whole):
            continue
        # The last of several sequences has no prefix.
        prefixes = [0 if prefix and at and at == len(padded) - 1 else prefix for at in range(len(padded))]
        sequences = tuple(Sequence(*span, count) for span, count in zip([whole] if starts else padded, prefixes))
        yield Mask(causal, left, right, chunk, length, sequences, starts)


@pytest.mark.parametrize("layout", ["contiguous", "zigzag"])
def test_what_travels_is_what_is_seen_and_no_more(layout):
    length = 12
    held = pieces(length, 3, layout)
    for mask in masks(length):
        seen = torch.stack([sees(mask, sequence) for sequence in mask.sequences]).any(0)

        def seen_by(*ranges):
            return {key for begin, end in ranges for key in seen[begin:end].any(0).nonzero().flatten().tolist()}

        for rank, owner in itertools.permutations(range(3), 2):
            of_rank = seen_by(*held[rank])
            want = [part for piece in held[owner] for part in joined([(key, key + 1) for key in of_rank & {*range(*piece)}])]
            assert needed_keys(mask, held[rank], held[owner]) == want, (mask, held[rank], held[owner])
        for piece in held[0]:
            found = seen_by(piece) | {*range(*piece)}
            assert seen_keys(mask, piece) == (min(found), max(found) + 1), (mask, piece)


def test_segments_cover_each_pair_of_a_document_once():
    documents = (0, 3, 3, 7, 8, 12)
    mask = Mask(False, -1, -1, 0, 12, (Sequence(0, 12, 0),), documents)
    seen = sees(mask, *mask.sequences)
    for queries, keys in (((0, 12), (0, 12)), ((2, 9), (2, 9)), ((0, 6), (6, 12)), ((5, 6), (0, 12))):
        found = []
        for segment in segments(mask, queries, keys):
            starts = [segment.origin + at for at in segment.documents or ()]
            spans = list(itertools.pairwise(starts)) or [(segment.origin, segment.origin + segment.length)]
            found += [(row, key) for begin, end in spans for row in range(*segment.queries)
                      for key in range(*segment.keys) if begin <= row < end and begin <= key < end]  # fmt: skip
        want = [(row, key) for row in range(*queries) for key in range(*keys) if seen[row, key]]
        assert sorted(found) == want
