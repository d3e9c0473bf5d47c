"""Merges the shares of calls whose keys are split. docs/contributors/row-state.md has the algebra."""

from __future__ import annotations

import triton
import triton.language as tl

from isentrope.gpu.kernels.block import Strides, place_of_rows
from isentrope.gpu.kernels.results import Results, write_block
from isentrope.gpu.kernels.shares import SHARED, load_shares, slot_of
from isentrope.gpu.kernels.sums import no_keys, with_parts
from isentrope.gpu.kernels.tile import Matrix, zeros


@triton.jit
def merge_shares(
    states, sums, shares, first_row, rows,
    WANTED: tl.constexpr, COUNT: tl.constexpr, MERGED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Returns state, support and value sums of COUNT rows of a query block over all keys."""
    state, support, acc = no_keys(COUNT), tl.zeros([COUNT], tl.int32), zeros(COUNT, COLUMNS)
    row, column = first_row + tl.arange(0, COUNT), tl.arange(0, COLUMNS)
    for first in range(0, shares, MERGED):
        share = first + tl.arange(0, MERGED)
        slot = slot_of(share)
        there = rows[:, None] & (share < shares)[None, :]
        its, its_support = load_shares(states + slot[None, :] * (SHARED * ROWS) + row[:, None], there, WANTED, ROWS)
        at = sums + (slot[None, :] * ROWS + row[:, None])[:, :, None] * COLUMNS + column[None, None, :]
        its_sums = tl.load(at, mask=there[:, :, None], other=0.0)
        state, rescale, take = with_parts(state, its, WANTED)
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
