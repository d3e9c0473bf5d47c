"""Stores the state of one share of a call's keys, and merges the shares of a query block in its last program.

docs/contributors/row-state.md has the algebra."""

from __future__ import annotations

import triton
import triton.language as tl

from isentrope.gpu.kernels.sums import RowState, raised, rebase
from isentrope.gpu.kernels.tile import Matrix, store_inf, zeros

# Floats of a row's state in a share.
SHARED = tl.constexpr(7)
# Shares merged at a time.
MERGED = tl.constexpr(16)


@triton.jit
def slot_of(share):
    """Returns the index of a share of this program's query block among the shares of all blocks."""
    return share.to(tl.int64) * tl.num_programs(0) + tl.program_id(0)


@triton.jit
def store_share(
    states, sums, state, support, acc, rows, WANTED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Stores the sums of this program's share: states f32 [slot, SHARED, ROWS], sums f32 [slot, ROWS, COLUMNS]. A slot
    is a tile, so that no row addresses stay in registers while keys are visited."""
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    slot = slot_of(tl.program_id(2))
    to = states + slot * (SHARED * ROWS) + row
    tl.store(to, state.m, mask=rows)
    tl.store(to + ROWS, state.s0, mask=rows)
    if WANTED.MOMENTS >= 1:
        tl.store(to + 2 * ROWS, state.s1, mask=rows)
    if WANTED.MOMENTS >= 2:
        tl.store(to + 3 * ROWS, state.s1p, mask=rows)
    if WANTED.COLLISION >= 0:
        tl.store(to + 4 * ROWS, state.s2, mask=rows)
    if WANTED.DISTANCE >= 0:
        tl.store(to + 5 * ROWS, state.s3, mask=rows)
    tl.store(to + 6 * ROWS, support.to(tl.int32).to(tl.float32, bitcast=True), mask=rows)
    tl.store(sums + slot * (ROWS * COLUMNS) + (row[:, None] * COLUMNS + column[None, :]), acc, mask=rows[:, None])


@triton.jit
def mark_share(sums, rows, counts, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Stores infinity in this program's sums where counts are positive."""
    its_sums = Matrix(sums + slot_of(tl.program_id(2)) * (ROWS * COLUMNS), COLUMNS, 1, COLUMNS)
    store_inf(its_sums, tl.arange(0, ROWS) * COLUMNS, rows, counts, COLUMNS, True)


@triton.jit
def load_shares(at, there, WANTED: tl.constexpr, ROWS: tl.constexpr):
    """Loads states and support stored by store_share at these addresses; an empty state if there is none."""
    m = tl.load(at, mask=there, other=float("-inf"))
    s0 = tl.load(at + ROWS, mask=there, other=0.0)
    s1, s1p, s2, s3 = s0, s0, s0, s0
    if WANTED.MOMENTS >= 1:
        s1 = tl.load(at + 2 * ROWS, mask=there, other=0.0)
    if WANTED.MOMENTS >= 2:
        s1p = tl.load(at + 3 * ROWS, mask=there, other=0.0)
    if WANTED.COLLISION >= 0:
        s2 = tl.load(at + 4 * ROWS, mask=there, other=0.0)
    if WANTED.DISTANCE >= 0:
        s3 = tl.load(at + 5 * ROWS, mask=there, other=0.0)
    support = tl.load(at + 6 * ROWS, mask=there, other=0.0).to(tl.int32, bitcast=True)
    return RowState(m, s0, s1, s1p, s2, s3), support


@triton.jit
def arrives_last(counter, shares, flagged):
    """Counts this program, whose share is stored, and returns whether it is the last of its query block.

    counter: int32, 0 before the first launch. flagged: 1 if the repair launch will run this program again. Programs that are
    flagged are counted once more there, so that the last of them merges the block again.
    """
    # The barrier orders all threads' stores before the count.
    tl.debug_barrier()
    before = tl.atomic_add(counter, 1 + flagged * 65536, sem="acq_rel")
    is_last = before % 65536 == shares - 1
    if is_last:
        tl.store(counter, shares - (before // 65536 + flagged))
    return is_last


@triton.jit
def merge_shares(
    states, sums, shares, first_row, rows, WANTED: tl.constexpr, COUNT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Returns state, support and value sums of COUNT rows of this program's block over all keys. Shares are added in
    their order, whichever program merges them."""
    none = tl.zeros([COUNT], tl.float32)
    state = RowState(none + float("-inf"), none, none, none, none, none)
    support, acc = tl.zeros([COUNT], tl.int32), zeros(COUNT, COLUMNS)
    row, column = first_row + tl.arange(0, COUNT), tl.arange(0, COLUMNS)
    for first in range(0, shares, MERGED):
        share = first + tl.arange(0, MERGED)
        slot = slot_of(share)
        there = rows[:, None] & (share < shares)[None, :]
        its, its_support = load_shares(states + slot[None, :] * (SHARED * ROWS) + row[:, None], there, WANTED, ROWS)
        at = sums + (slot[None, :] * ROWS + row[:, None])[:, :, None] * COLUMNS + column[None, None, :]
        its_sums = tl.load(at, mask=there[:, :, None], other=0.0)
        m, origin, rescale, shift = raised(state.m, tl.max(its.m, 1))
        _, _, take, moved = raised(its.m, origin[:, None])
        state, its = rebase(state, m, rescale, shift, WANTED), rebase(its, its.m, take, moved, WANTED)
        state = RowState(
            m, state.s0 + tl.sum(its.s0, 1), state.s1 + tl.sum(its.s1, 1), state.s1p + tl.sum(its.s1p, 1),
            state.s2 + tl.sum(its.s2, 1), state.s3 + tl.sum(its.s3, 1),
        )  # fmt: skip
        support += tl.sum(its_support, 1)
        acc = acc * rescale[:, None] + tl.sum(its_sums * take[:, :, None], 1)
    return state, support, acc
