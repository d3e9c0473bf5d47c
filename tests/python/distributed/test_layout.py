"""Rows of each rank, and the keys that they need."""

import importlib
import itertools

import pytest
import torch
from dense import visible

from isentrope._core import library
from isentrope._core.masks import Masks
from isentrope.distributed import functions
from isentrope.distributed.layout import joined, local_slices, pieces
from isentrope.distributed.visibility import keys_seen, needed_keys, segments, spanned


def test_an_argument_that_nobody_here_knows_is_refused(monkeypatch):
    monkeypatch.setattr(library, "DEFAULTS", library.DEFAULTS | {"stride_of_keys": 0})
    with pytest.raises(ImportError, match="must know every argument; got stride_of_keys"):
        importlib.reload(functions)


@pytest.mark.parametrize("layout", ["contiguous", "zigzag"])
def test_every_row_has_one_rank(layout):
    for length, ranks in itertools.product(range(20), range(1, 9)):
        by_rank = pieces(length, ranks, layout)
        rows = [row for ranges in by_rank for begin, end in ranges for row in range(begin, end)]
        assert sorted(rows) == list(range(length))
        assert all(begin < end for ranges in by_rank for begin, end in ranges)


def test_contiguous_is_cut_as_torch_chunk_does():
    assert pieces(5, 4, "contiguous") == [[(0, 2)], [(2, 4)], [(4, 5)], []]


def test_zigzag_has_an_early_and_a_late_piece():
    assert pieces(8, 2, "zigzag") == [[(0, 2), (6, 8)], [(2, 6)]]
    counts = [sum(row + 1 for begin, end in ranges for row in range(begin, end)) for ranges in pieces(64, 4, "zigzag")]
    assert len(set(counts)) == 1


def test_rows_are_found_where_they_lie():
    assert local_slices([(0, 2), (6, 8)], [(7, 8), (0, 2)]) == [slice(3, 4), slice(0, 2)]


def sees(masks, batch, length):
    """Returns the keys that each row of a sequence sees, document by document: bool [rows, keys]."""
    lists = {name: x[batch : batch + 1] for name in ("key_begin", "key_end", "prefix_keys") if (x := getattr(masks, name)) is not None}
    window = masks.window_left, masks.window_right
    documents = torch.tensor([0, length]) if masks.cu_seqlens_q is None else masks.cu_seqlens_q
    tokens = [torch.empty(1, 1, n, 1) for n in documents.diff().tolist()]
    options = {"causal": masks.causal, "window_size": window, "chunk_size": masks.chunk_size, **lists}
    return torch.block_diag(*(visible(x, x, **options)[0][0, 0] for x in tokens)).bool()


def every_mask(length):
    """Yields masks, and the number of sequences in their batch."""
    paddings = [None, [(2, length - 1)], [(3, 3)], [(0, length), (2, length - 1)], [(5, length), (3, 3), (0, 4)]]
    documents = [None, (0, length), tuple(sorted({0, 1, length // 2, length}))]
    for causal, left, right, chunk, prefix, starts, padded in itertools.product(
        (0, 1), (-1, 0, 2), (-1, 0, 3), (0, 1, 5), (0, 4, 99), documents, paddings
    ):
        if (prefix and (chunk or left >= 0)) or (starts and padded):  # combinations that no call may have
            continue
        batch = len(padded or [0])
        # The last of several sequences has no prefix.
        prefixes = [0 if sequence and sequence == batch - 1 else prefix for sequence in range(batch)]
        begin, end = torch.tensor(padded).unbind(1) if padded else (None, None)
        cuts = None if starts is None else torch.tensor(starts)
        yield batch, Masks(
            key_begin=begin, key_end=end, prefix_keys=torch.tensor(prefixes) if prefix else None, cu_seqlens_q=cuts,
            cu_seqlens_k=cuts, causal=causal, window_left=left, window_right=right, chunk_size=chunk,
        )  # fmt: skip


@pytest.mark.parametrize("layout", ["contiguous", "zigzag"])
def test_what_travels_is_what_is_seen_and_no_more(layout):
    length = 12
    by_rank = pieces(length, 3, layout)
    for batch, masks in every_mask(length):
        mask = torch.stack([sees(masks, sequence, length) for sequence in range(batch)]).any(0)
        ranges_seen = iter(keys_seen(masks, batch, length, [piece for its in by_rank for piece in its]))
        of_rank = [[next(ranges_seen) for _ in its] for its in by_rank]

        def seen_by(*ranges):
            return {key for begin, end in ranges for key in mask[begin:end].any(0).nonzero().flatten().tolist()}

        for rank, owner in itertools.permutations(range(3), 2):
            its = seen_by(*by_rank[rank])
            want = [part for piece in by_rank[owner] for part in joined([(key, key + 1) for key in its & {*range(*piece)}])]
            its_ranges = [range_ for piece in of_rank[rank] for range_ in piece]
            assert needed_keys(its_ranges, by_rank[owner]) == want, (masks, by_rank[rank], by_rank[owner])
        for piece, its_ranges in zip(by_rank[0], of_rank[0]):
            keys = seen_by(piece) | {*range(*piece)}
            assert spanned(piece, its_ranges) == (min(keys), max(keys) + 1), (masks, piece)


def test_segments_cover_each_pair_of_a_document_once():
    documents = (0, 3, 3, 7, 8, 12)
    mask = sees(Masks(cu_seqlens_q=torch.tensor(documents)), 0, 12)
    for queries, keys in (((0, 12), (0, 12)), ((2, 9), (2, 9)), ((0, 6), (6, 12)), ((5, 6), (0, 12))):
        pairs = []
        for segment in segments(documents, 12, queries, keys):
            starts = [segment.origin + start for start in segment.documents or ()]
            spans = list(itertools.pairwise(starts)) or [(segment.origin, segment.origin + segment.length)]
            pairs += [(row, key) for begin, end in spans for row in range(*segment.queries)
                      for key in range(*segment.keys) if begin <= row < end and begin <= key < end]  # fmt: skip
        want = [(row, key) for row in range(*queries) for key in range(*keys) if mask[row, key]]
        assert sorted(pairs) == want
