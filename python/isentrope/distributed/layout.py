"""Assigns rows of a sequence to ranks.

    contiguous   rank r of 4 has piece r of 4        0 | 1 | 2 | 3
    zigzag       pieces r and 7 - r of 8             0 7 | 1 6 | 2 5 | 3 4

Under a causal mask later rows see more keys than earlier ones; in zigzag every rank has the same work. Pieces have
equal length, cut like `torch.chunk` and DTensor do: the last ones are shorter, or empty.
"""

from __future__ import annotations

from isentrope._core.values import check_choice, checked_integer

Range = tuple[int, int]
"""Rows begin, begin + 1, ..., end - 1 of the whole sequence."""

LAYOUTS = ("contiguous", "zigzag")


def pieces(length: int, ranks: int, layout: str) -> list[list[Range]]:
    """Returns the rows of each rank, in the order of the sequence, without empty pieces."""
    check_layout(layout)
    if layout == "contiguous":
        return [joined([piece]) for piece in _chunks(length, ranks)]
    chunks = _chunks(length, 2 * ranks)
    return [joined([chunks[rank], chunks[-1 - rank]]) for rank in range(ranks)]


def check_layout(layout: str) -> None:
    check_choice("isentrope.distributed", "layout", layout, LAYOUTS)


def check_length(length: int | None) -> None:
    """Raises ValueError for an invalid length of a whole sequence; None stands for equal parts."""
    if length is not None and checked_integer("isentrope.distributed", "sequence_length", length) < 0:
        raise ValueError(f"[isentrope.distributed] sequence_length must not be negative; got {length}")


def _chunks(length: int, count: int) -> list[Range]:
    step = -(-length // count)
    return [(min(i * step, length), min((i + 1) * step, length)) for i in range(count)]


def joined(ranges: list[Range]) -> list[Range]:
    """Returns sorted ranges, with touching or overlapping ones joined and empty ones removed."""
    merged: list[Range] = []
    for begin, end in sorted(ranges):
        if begin == end:
            continue
        if merged and merged[-1][1] >= begin:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def rows_of(ranges: list[Range]) -> int:
    return sum(end - begin for begin, end in ranges)


def overlap(a: Range, b: Range) -> Range:
    """Returns the rows of both ranges; begin == end if there are none."""
    begin = max(a[0], b[0])
    return begin, max(begin, min(a[1], b[1]))


def local_slices(local: list[Range], wanted: list[Range]) -> list[slice]:
    """Returns slices of a tensor of the rows `local` for the rows `wanted`, each of which lies in one local range."""
    slices = []
    for begin, end in wanted:
        before = 0
        for first, last in local:
            if first <= begin and end <= last:
                slices.append(slice(before + begin - first, before + end - first))
            before += last - first
    return slices
