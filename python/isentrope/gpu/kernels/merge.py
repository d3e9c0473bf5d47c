"""Merges the shares of calls whose keys are split. docs/contributors/row-state.md has the algebra."""

from __future__ import annotations

import triton
import triton.language as tl

from isentrope.gpu.kernels.block import Strides, place_of_rows
from isentrope.gpu.kernels.results import Results, write_block
from isentrope.gpu.kernels.shares import SHARED, slot_of
from isentrope.gpu.kernels.sums import RowState, raised, rebase
from isentrope.gpu.kernels.tile import Matrix, zeros


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
def merge_shares(
    states, sums, shares, first_row, rows,
    WANTED: tl.constexpr, COUNT: tl.constexpr, MERGED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Returns state, support and value sums of COUNT rows of a query block over all keys."""
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


@triton.jit(do_not_specialize=["heads", "kv_heads", "queries", "splits"])
def merge_kernel(
    states, sums, output, statistics, supports, sinks, starts, stride_ob, stride_oh, stride_on, stride_od,
    heads, kv_heads, queries, value_dim, splits, kept_factor,
    WANTED: tl.constexpr, SINK: tl.constexpr, PACKED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    EVEN_COLUMNS: tl.constexpr, COUNT: tl.constexpr, MERGED: tl.constexpr,
):  # fmt: skip
    """Program (query block, COUNT of its rows): computes output and statistics from the sums of all shares of the keys,
    which store_share stored, MERGED shares at a time."""
    first = tl.program_id(1) * COUNT
    place = place_of_rows(first, heads, kv_heads, queries, starts, COUNT, ROWS, PACKED)
    state, support, acc = merge_shares(states, sums, splits, first, place.rows, WANTED, COUNT, MERGED, ROWS, COLUMNS)
    to_output = Strides(stride_ob, stride_oh, stride_on, stride_od)
    results = Results(Matrix(output, stride_on, stride_od, value_dim), to_output, statistics, supports, sinks, kept_factor)
    write_block(state, acc, support, place, results, WANTED, SINK, COLUMNS, EVEN_COLUMNS)
