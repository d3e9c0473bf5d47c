"""Compile-time parameters of tile kernels, loads, stores and products.

A tile of scores is [rows, keys], or with KEYS_FIRST its transpose.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
# Weights in float16 are multiplied by 2^14, so that small ones are not denormal; dividing again is exact.
F16_LIFT = tl.constexpr(14.0)
F16_FACTOR = tl.constexpr(16384.0)


class Shape(NamedTuple):
    """Compile-time parameters of a kernel.

    They are its tile, stages of loads and padded head dimensions; EVEN: these need no padding; presence of soft-cap,
    boolean mask and bias; MASKED: whether any tile is, with one of those two; PRECISION of float32 products; DROPOUT;
    whether tiles begin with whole FOURS of keys; the DILATION, with which any tile is MASKED too. CHAINED: sums of a
    row that are chained (`sums`; 0: none). LAST: whether the key at a row's OWN position is the last that it sees, as
    far as distances need to know. APART: gradients of keys and of values are computed by separate launches. ONE_LOOP:
    masked tiles are visited in the same loop as others, by a branch. OCCUPANCY: programs of a multiprocessor, for
    splitting the keys. DESCRIPTORS: whole tiles are loaded by tensor descriptors."""

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
    OCCUPANCY: int = 2
    DESCRIPTORS: bool = False


class Matrix(NamedTuple):
    """Rows of `columns` numbers in memory: address of the first, and strides to the next row and column."""

    base: tl.tensor
    to_row: tl.tensor
    to_column: tl.tensor
    columns: tl.tensor


@triton.jit
def zeros(ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Returns float32 zeros [ROWS, COLUMNS]. Triton 3.6 does not accept shapes made of a Shape's numbers."""
    return tl.zeros([ROWS, COLUMNS], tl.float32)


@triton.jit
def full(COUNT: tl.constexpr, x, dtype: tl.constexpr):
    """Returns a vector of COUNT times x."""
    return tl.full([COUNT], x, dtype)


@triton.jit
def dot(a, b, acc, SHAPE: tl.constexpr):
    """Returns acc + a b, with products of 16-bit numbers exact and sums in float32."""
    if INTERPRETED:
        # The interpreter would multiply the bit patterns of bfloat16.
        return acc + tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    else:
        return tl.dot(a, b, acc, input_precision=SHAPE.PRECISION)


@triton.jit
def cast(x, dtype: tl.constexpr):
    """Casts x to the type of a product or a result, rounded to nearest even."""
    if INTERPRETED and dtype == tl.bfloat16:
        # The interpreter truncates.
        bits = x.to(tl.uint32, bitcast=True)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        x = tl.where(x == x, rounded.to(tl.float32, bitcast=True), x)
    return x.to(dtype)


@triton.jit
def load_rows(matrix, offsets, rows, COLUMNS: tl.constexpr, CHECK_ROWS: tl.constexpr, EVEN: tl.constexpr):
    """Loads [rows, COLUMNS] numbers at base + offsets; 0 where `rows` is False and past the matrix's columns."""
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
    """Widens a count of rows to the width of addresses. It is non-negative, so products with strides need no sign
    extension: 3 to 5 instructions less per iteration."""
    return rows.to(tl.uint32).to(tl.int64)


@triton.jit
def advance(matrix, rows):
    """Returns the matrix without its first rows."""
    return Matrix(matrix.base + offset(rows) * matrix.to_row, matrix.to_row, matrix.to_column, matrix.columns)


@triton.jit
def load_tile(matrix, inside, ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHECK_ROWS: tl.constexpr, EVEN: tl.constexpr):
    """Loads the first ROWS rows of a matrix."""
    return load_rows(matrix, tl.arange(0, ROWS).to(tl.int64) * matrix.to_row, inside, COLUMNS, CHECK_ROWS, EVEN)


@triton.jit
def store_rows(matrix, offsets, rows, x, COLUMNS: tl.constexpr, EVEN: tl.constexpr):
    """Stores x [rows, COLUMNS], rounded to the matrix's type, at the addresses of load_rows."""
    column = tl.arange(0, COLUMNS)
    at = matrix.base + offsets[:, None] + column[None, :].to(tl.int64) * matrix.to_column
    there = rows[:, None]
    if not EVEN:
        there = there & (column < matrix.columns)[None, :]
    tl.store(at, cast(x, matrix.base.dtype.element_ty), mask=there)


@triton.jit
def nonfinite_flag(x):
    """Returns 0, or NaN if a tile of float32 contains NaN or Inf."""
    return tl.sum(tl.sum(x * 0.0, 1), 0)


@triton.jit
def flag(wrong, nothing):
    """Notes whether this program has sums that are not finite. nothing: sums of `nonfinite_flag`."""
    tl.store(wrong + tl.program_id(0), nothing != nothing)


@triton.jit
def finite_part(values):
    """Returns the values with NaN and Inf replaced by 0; `propagate_nonfinite` finds the rows that see those."""
    # In float32, because the interpreter compares the bit patterns of bfloat16.
    finite = tl.abs(values.to(tl.float32)) < float("inf")
    return tl.where(finite, values, 0.0).to(values.dtype)


@triton.jit
def propagate_nonfinite(seen, values, acc, SHAPE: tl.constexpr):
    """Counts, for each row and column, the non-finite values that the row sees."""
    finite = tl.abs(values.to(tl.float32)) < float("inf")
    return dot(tl.where(seen, 1.0, 0.0).to(tl.bfloat16), tl.where(finite, 0.0, 1.0).to(tl.bfloat16), acc, SHAPE)


@triton.jit
def store_inf(matrix, offsets, rows, counts, COLUMNS: tl.constexpr, EVEN: tl.constexpr):
    """Stores infinity where counts are positive, at the addresses of store_rows."""
    column = tl.arange(0, COLUMNS)
    at = matrix.base + offsets[:, None] + column[None, :].to(tl.int64) * matrix.to_column
    there = rows[:, None] & (counts > 0)
    if not EVEN:
        there = there & (column < matrix.columns)[None, :]
    tl.store(at, float("inf"), mask=there)


@triton.jit
def as_column(x, KEYS_FIRST: tl.constexpr):
    """Returns per-row numbers with an axis of 1 for the keys of a tile; with KEYS_FIRST per-key numbers, transposed."""
    if KEYS_FIRST:
        return x[None, :]
    else:
        return x[:, None]
