"""Tiles: what a kernel of tiles is compiled for, loads and products.

A tile of scores is [rows, keys], or with KEYS_FIRST its transpose.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
# Weights in float16 are kept 2^14 times larger, so that small ones do not become denormal: exact to undo.
F16_LIFT = tl.constexpr(14.0)
F16_FACTOR = tl.constexpr(16384.0)


class Shape(NamedTuple):
    """What a kernel is compiled for: its tile, stages of loads, padded head dimensions, whether they are EVEN, that is
    need no padding, which of soft-cap, boolean mask and bias there are, whether with one of those two any tile is MASKED, the
    PRECISION of float32 products, whether there is DROPOUT, whether tiles begin with whole FOURS of keys, the DILATION of
    what rows see, for which any tile is MASKED too, how many sums a row has that are CHAINED (`sums`; 0: none is), and whether
    the key at a row's OWN position is the LAST that it sees, as far as its distance wants to know, whether gradients of keys
    and of values are summed APART, each by a launch of its own, whether tiles that hide something are visited in ONE_LOOP with the
    others, by a branch, and how many PLACES for programs a multiprocessor has, for which the keys are split."""

    ROWS: int
    KEYS: int
    STAGES: int
    DIM: int
    COLUMNS: int
    EVEN: bool
    EVEN_COLUMNS: bool
    CAPPED: bool
    ATTN_MASK: bool
    BIAS: bool
    MASKED: bool
    PRECISION: str
    DROPOUT: bool
    FOURS: bool
    DILATION: int
    CHAINED: int
    OWN_LAST: bool = False
    APART: bool = False
    ONE_LOOP: bool = False
    PLACES: int = 2


class Matrix(NamedTuple):
    """Rows of `columns` numbers in memory: where the first begins, and the steps to the next row and column."""

    base: tl.tensor
    to_row: tl.tensor
    to_column: tl.tensor
    columns: tl.tensor


@triton.jit
def zeros(ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """float32 [ROWS, COLUMNS]. A shape made of a Shape's numbers is none to Triton 3.6."""
    return tl.zeros([ROWS, COLUMNS], tl.float32)


@triton.jit
def each(COUNT: tl.constexpr, x, dtype: tl.constexpr):
    """[COUNT] times x."""
    return tl.full([COUNT], x, dtype)


@triton.jit
def dot(a, b, acc, SHAPE: tl.constexpr):
    """acc + a b, with products of 16-bit numbers exact and sums in float32."""
    if INTERPRETED:
        # The interpreter would multiply the bit patterns of bfloat16.
        return acc + tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    else:
        return tl.dot(a, b, acc, input_precision=SHAPE.PRECISION)


@triton.jit
def narrow(x, dtype: tl.constexpr):
    """x in the type of a product or a result, rounded to nearest even."""
    if INTERPRETED and dtype == tl.bfloat16:
        # The interpreter cuts digits off.
        bits = x.to(tl.uint32, bitcast=True)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        x = tl.where(x == x, rounded.to(tl.float32, bitcast=True), x)
    return x.to(dtype)


@triton.jit
def load_rows(matrix, offsets, rows, COLUMNS: tl.constexpr, CHECK_ROWS: tl.constexpr, EVEN: tl.constexpr):
    """[rows, COLUMNS] numbers at base + offsets; 0 where `rows` is False and beyond the matrix's columns."""
    column = tl.arange(0, COLUMNS)
    at = matrix.base + offsets[:, None] + column[None, :].to(tl.int64) * matrix.to_column
    if EVEN:
        if CHECK_ROWS:
            return tl.load(at, mask=rows[:, None], other=0.0)
        else:
            return tl.load(at)
    else:
        there = (column < matrix.columns)[None, :]
        if CHECK_ROWS:
            there = there & rows[:, None]
        return tl.load(at, mask=there, other=0.0)


@triton.jit
def offset(rows):
    """A count of rows as wide as addresses. It is not negative: the product with a step then has no sign to extend, which takes 3
    to 5 instructions less in each round."""
    return rows.to(tl.uint32).to(tl.int64)


@triton.jit
def moved(matrix, rows):
    """The matrix without its first rows."""
    return Matrix(matrix.base + offset(rows) * matrix.to_row, matrix.to_row, matrix.to_column, matrix.columns)


@triton.jit
def load_tile(matrix, inside, ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHECK_ROWS: tl.constexpr, EVEN: tl.constexpr):
    """The first ROWS rows of a matrix."""
    return load_rows(matrix, tl.arange(0, ROWS).to(tl.int64) * matrix.to_row, inside, COLUMNS, CHECK_ROWS, EVEN)


@triton.jit
def store_rows(matrix, offsets, rows, x, COLUMNS: tl.constexpr, EVEN: tl.constexpr):
    """x [rows, COLUMNS], rounded to the matrix's type, where load_rows would load it from."""
    column = tl.arange(0, COLUMNS)
    at = matrix.base + offsets[:, None] + column[None, :].to(tl.int64) * matrix.to_column
    there = rows[:, None]
    if not EVEN:
        there = there & (column < matrix.columns)[None, :]
    tl.store(at, narrow(x, matrix.base.dtype.element_ty), mask=there)


@triton.jit
def nothing_of(x):
    """0, or NaN where a tile of float32 holds anything but numbers."""
    return tl.sum(tl.sum(x * 0.0, 1), 0)


@triton.jit
def finite_part(values):
    """Values without those that are no numbers, for 0 times NaN is NaN. `reach` tells who sees those."""
    # In float32, for the interpreter compares the bit patterns of bfloat16.
    finite = tl.abs(values.to(tl.float32)) < float("inf")
    return tl.where(finite, values, 0.0).to(values.dtype)


@triton.jit
def reach(seen, values, acc, SHAPE: tl.constexpr):
    """Counts, for each row and column, the values that are no numbers among those that the row sees."""
    finite = tl.abs(values.to(tl.float32)) < float("inf")
    return dot(tl.where(seen, 1.0, 0.0).to(tl.bfloat16), tl.where(finite, 0.0, 1.0).to(tl.bfloat16), acc, SHAPE)


@triton.jit
def mark_rows(matrix, offsets, rows, counts, COLUMNS: tl.constexpr, EVEN: tl.constexpr):
    """Infinity where something counts, at the places where store_rows would have put it."""
    column = tl.arange(0, COLUMNS)
    at = matrix.base + offsets[:, None] + column[None, :].to(tl.int64) * matrix.to_column
    there = rows[:, None] & (counts > 0)
    if not EVEN:
        there = there & (column < matrix.columns)[None, :]
    tl.store(at, float("inf"), mask=there)


@triton.jit
def beside(x, KEYS_FIRST: tl.constexpr):
    """Numbers of rows, with an axis of 1 where the keys of a tile run. Those of keys, with KEYS_FIRST turned round."""
    if KEYS_FIRST:
        return x[None, :]
    else:
        return x[:, None]
