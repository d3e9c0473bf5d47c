"""Which rows a rank holds, and which keys they need."""

import itertools

import pytest

from isentrope.distributed.layout import local_slices, pieces
from isentrope.distributed.visibility import Mask, needed_keys, segments


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


def row_sees(mask, row, key):
    documents = mask.documents or (0, mask.length)
    same = any(begin <= row < end and begin <= key < end for begin, end in itertools.pairwise(documents))
    return (
        same
        and (not mask.causal or key <= row)
        and (mask.left < 0 or key >= row - mask.left)
        and (mask.right < 0 or key <= row + mask.right)
        and mask.padding[0] <= key < mask.padding[1]
    )


def masks(length):
    documents = [None, (0, length), tuple(sorted({0, 1, length // 2, length}))]
    paddings = [(0, length), (2, length - 1), (3, 3)]
    return [
        Mask(*parts, length=length, padding=padding, documents=starts)
        for *parts, padding, starts in itertools.product((False, True), (-1, 0, 2), (-1, 0, 3), paddings, documents)
    ]


@pytest.mark.parametrize("layout", ["contiguous", "zigzag"])
def test_what_travels_is_what_is_seen_and_no_more(layout):
    length = 12
    held = pieces(length, 3, layout)
    for mask in masks(length):
        for queries, keys in itertools.permutations(held, 2):
            got = needed_keys(mask, queries, keys)
            for begin, end in keys:
                seen = [key for key in range(begin, end) for low, high in queries for row in range(low, high)
                        if row_sees(mask, row, key)]  # fmt: skip
                want = [(min(seen), max(seen) + 1)] if seen else []
                assert [part for part in got if begin <= part[0] < end] == want, (mask, queries, keys)


def test_segments_cover_each_pair_of_a_document_once():
    documents = (0, 3, 3, 7, 8, 12)
    mask = Mask(False, -1, -1, 12, (0, 12), documents)
    for queries, keys in (((0, 12), (0, 12)), ((2, 9), (2, 9)), ((0, 6), (6, 12)), ((5, 6), (0, 12))):
        found = []
        for segment in segments(mask, queries, keys):
            starts = [segment.origin + at for at in segment.documents or ()]
            spans = list(itertools.pairwise(starts)) or [(segment.origin, segment.origin + segment.length)]
            found += [(row, key) for begin, end in spans for row in range(*segment.queries)
                      for key in range(*segment.keys) if begin <= row < end and begin <= key < end]  # fmt: skip
        want = [(row, key) for row in range(*queries) for key in range(*keys) if row_sees(mask, row, key)]
        assert sorted(found) == want
