"""Converts sums of rows to results."""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from isentrope.gpu.kernels.block import Strides, index_of, offsets
from isentrope.gpu.kernels.softmax import LN2
from isentrope.gpu.kernels.tile import F16_FACTOR, Matrix, store_rows


class Results(NamedTuple):
    """Destinations of a call's results, with sinks and the factor of kept weights."""

    output: Matrix
    strides: Strides
    statistics: tl.tensor
    supports: tl.tensor
    sinks: tl.tensor
    kept_factor: tl.tensor


@triton.jit
def write_rows(
    state, acc, some, support, sink, kept_factor, output, statistics, supports, plane, row, rows, place,
    WANTED: tl.constexpr, SINK: tl.constexpr, COLUMNS: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Stores results at `place` of the output. some: rows with support; the others are empty, whatever their sums hold.

    kept_factor: dropout's factor of kept weights."""
    m, s0 = state.m, state.s0
    weights = s0
    if output.base.dtype.element_ty == tl.float16:
        # Divided before the logarithm: one above 16 is rounded to 2^-20, more than the budget of a short row's lse.
        weights = s0 * (1.0 / F16_FACTOR)
    log_s0 = tl.log2(weights) * LN2
    lse = tl.where(some, m * LN2 + log_s0, float("-inf"))
    factor = kept_factor / s0
    if SINK:
        factor = factor / (1.0 + tl.exp(sink - lse))
    acc = tl.where(some[:, None], acc * factor[:, None], 0.0)
    store_rows(output, place, rows, acc, COLUMNS, EVEN)
    if WANTED.LSE >= 0:
        tl.store(statistics + WANTED.LSE * plane + row, lse, mask=rows)
    mean = state.s1 / s0
    if WANTED.ENTROPY >= 0:
        entropy = log_s0 - mean * LN2
        entropy = tl.where(some, tl.where(entropy < 0, 0.0, entropy), 0.0)
        tl.store(statistics + WANTED.ENTROPY * plane + row, entropy, mask=rows)
    if WANTED.COLLISION >= 0:
        collision = state.s2 / (s0 * s0)
        tl.store(statistics + WANTED.COLLISION * plane + row, tl.where(some, collision, 0.0), mask=rows)
    if WANTED.VARIANCE >= 0:
        variance = (state.s1p / s0 - mean * mean) * (LN2 * LN2)
        variance = tl.where(some, tl.where(variance < 0, 0.0, variance), 0.0)
        tl.store(statistics + WANTED.VARIANCE * plane + row, variance, mask=rows)
    if WANTED.MAX_LOGIT >= 0:
        most = tl.where(s0 != s0, s0, m * LN2)
        tl.store(statistics + WANTED.MAX_LOGIT * plane + row, tl.where(some, most, float("-inf")), mask=rows)
    if WANTED.DISTANCE >= 0:
        tl.store(statistics + WANTED.DISTANCE * plane + row, tl.where(some, state.s3 / s0, 0.0), mask=rows)
    if WANTED.MAX_PROBABILITY >= 0:
        # 1 / s0, because the largest key has weight 1, or its lift; NaN if all logits are -inf.
        most = s0 / (s0 * s0)
        if output.base.dtype.element_ty == tl.float16:
            most = most * F16_FACTOR
        tl.store(statistics + WANTED.MAX_PROBABILITY * plane + row, tl.where(some, most, 0.0), mask=rows)
    if WANTED.SUPPORT:
        tl.store(supports + row, support.to(tl.int64), mask=rows)


@triton.jit
def write_block(
    state, acc, support, place, results, WANTED: tl.constexpr, SINK: tl.constexpr, COLUMNS: tl.constexpr, EVEN: tl.constexpr
):  # fmt: skip
    """Converts rows' sums over all keys to results and stores them."""
    row, plane = index_of(place)
    sink = state.s0
    if SINK:
        sink = tl.load(results.sinks + place.head, mask=place.rows, other=0.0)
    write_rows(
        state, acc, support > 0, support, sink, results.kept_factor, results.output, results.statistics, results.supports,
        plane, row, place.rows, offsets(place, results.strides), WANTED, SINK, COLUMNS, EVEN,
    )  # fmt: skip
