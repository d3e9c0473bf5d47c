"""The shares of a row whose keys were split, merged by the row state's algebra (docs/contributors/row-state.md)."""

from __future__ import annotations

import triton
import triton.language as tl

from isentrope.gpu.kernels.results import load_share, write_rows
from isentrope.gpu.kernels.sums import RowState, joined, raised, rebase
from isentrope.gpu.kernels.tile import Matrix


@triton.jit(do_not_specialize=["heads", "queries", "rows", "shares"])
def merge_kernel(
    states, sums, output, statistics, supports, sinks, stride_ob, stride_oh, stride_on, stride_od,
    heads, queries, rows, value_dim, shares, kept_factor,
    WANTED: tl.constexpr, SINK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EVEN_COLUMNS: tl.constexpr,
):  # fmt: skip
    """Program (rows): states f32 [share, SHARED, rows] and sums f32 [share, rows, COLUMNS] to output and statistics."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    mine = row < rows
    plane = rows.to(tl.int64)
    column = tl.arange(0, COLUMNS)
    zero = tl.zeros([ROWS], tl.float32)
    state = RowState(tl.full([ROWS], float("-inf"), tl.float32), zero, zero, zero, zero, zero)
    support = tl.zeros([ROWS], tl.int64)
    acc = tl.zeros([ROWS, COLUMNS], tl.float32)
    for share in range(shares):
        its, its_support = load_share(states, share, plane, row, mine, WANTED)
        m, origin, rescale, shift = raised(state.m, its.m)
        state = rebase(state, m, rescale, shift, WANTED)
        _, _, take, moved = raised(its.m, origin)
        its = rebase(its, m, take, moved, WANTED)
        state = joined(state, its)
        support += its_support
        at = sums + (share * plane + row)[:, None] * COLUMNS + column[None, :]
        its_sums = tl.load(at, mask=mine[:, None], other=0.0)
        acc = acc * rescale[:, None] + its_sums * take[:, None]
    batch, head, query = row // (heads * queries), row // queries % heads, row % queries
    sink = zero
    if SINK:
        sink = tl.load(sinks + head, mask=mine, other=0.0)
    place = batch * stride_ob + head * stride_oh + query * stride_on
    write_rows(
        state, acc, support > 0, support, sink, kept_factor, Matrix(output, stride_on, stride_od, value_dim), statistics, supports,
        plane, row, mine, place, WANTED, SINK, COLUMNS, EVEN_COLUMNS,
    )  # fmt: skip
