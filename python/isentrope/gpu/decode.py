"""The shares of a row whose keys were split, merged by the row state's algebra (docs/row-state.md)."""

from __future__ import annotations

import triton
import triton.language as tl

from isentrope.gpu.forward import write_rows
from isentrope.gpu.tile import raised, rebase


@triton.jit(do_not_specialize=["heads", "queries", "rows", "splits"])
def merge_kernel(
    states, sums, output, statistics, supports, sinks, stride_ob, stride_oh, stride_on, stride_od,
    heads, queries, rows, value_dim, splits,
    LSE: tl.constexpr, ENTROPY: tl.constexpr, COLLISION: tl.constexpr, VARIANCE: tl.constexpr, MAX_LOGIT: tl.constexpr,
    DISTANCE: tl.constexpr, SUPPORT: tl.constexpr, SINK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    EVEN_COLUMNS: tl.constexpr,
):  # fmt: skip
    """Program (rows): states f32 [share, 7, rows] and sums f32 [share, rows, COLUMNS] to output and statistics."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    mine = row < rows
    plane = rows.to(tl.int64)
    column = tl.arange(0, COLUMNS)
    m = tl.full([ROWS], float("-inf"), tl.float32)
    s0 = tl.zeros([ROWS], tl.float32)
    s1, s1p, s2, s3 = s0, s0, s0, s0
    support = tl.zeros([ROWS], tl.int64)
    acc = tl.zeros([ROWS, COLUMNS], tl.float32)
    for share in range(splits):
        at = states + share * 7 * plane + row
        its = tl.load(at, mask=mine, other=float("-inf"))
        m, origin, keep, shift = raised(m, its[:, None])
        s0, s1, s1p, s2, s3 = rebase(keep, shift, s0, s1, s1p, s2, s3, 2, True, True)
        _, _, take, moved = raised(its, origin[:, None])
        t0, t1, t1p, t2, t3 = rebase(
            take, moved, tl.load(at + plane, mask=mine, other=0.0), tl.load(at + 2 * plane, mask=mine, other=0.0),
            tl.load(at + 3 * plane, mask=mine, other=0.0), tl.load(at + 4 * plane, mask=mine, other=0.0),
            tl.load(at + 5 * plane, mask=mine, other=0.0), 2, True, True,
        )  # fmt: skip
        s0, s1, s1p, s2, s3 = s0 + t0, s1 + t1, s1p + t1p, s2 + t2, s3 + t3
        support += tl.load(at + 6 * plane, mask=mine, other=0.0).to(tl.int32, bitcast=True)
        its_sums = tl.load(
            sums + (share * plane + row)[:, None] * COLUMNS + column[None, :], mask=mine[:, None], other=0.0
        )
        acc = acc * keep[:, None] + its_sums * take[:, None]
    batch, head, query = row // (heads * queries), row // queries % heads, row % queries
    sink = s0
    if SINK:
        sink = tl.load(sinks + head, mask=mine, other=0.0)
    place = batch * stride_ob + head * stride_oh + query * stride_on
    write_rows(
        m, s0, s1, s1p, s2, s3, acc, support > 0, support, sink, output, statistics, supports, plane, row, mine,
        place, value_dim, stride_od, LSE, ENTROPY, COLLISION, VARIANCE, MAX_LOGIT, DISTANCE, SUPPORT, SINK, COLUMNS,
        EVEN_COLUMNS,
    )  # fmt: skip
