"""Dropout mask: the function of seed and position that docs/adr/0013 fixes for every backend."""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from isentrope.gpu.kernels.tile import as_column


class Dropout(NamedTuple):
    """Dropout of a sequence: counter and seed of the random bits, the least bits of a kept weight, and its factor."""

    seed: tl.tensor
    least: tl.tensor
    factor: tl.tensor
    batch: tl.tensor
    query_offset: tl.tensor
    key_offset: tl.tensor


@triton.jit
def dropout_of(seed, least, factor, batch, query_offset, key_offset, SHAPE: tl.constexpr):
    """Returns the state of dropout from the arguments of a kernel; `seed` is a pointer."""
    number = batch
    if SHAPE.DROPOUT:
        number = tl.load(seed)
    return Dropout(number, least.to(tl.uint32), factor, batch.to(tl.uint32), query_offset, key_offset)


@triton.jit
def words_of(dropout, head, query, group, KEYS_FIRST: tl.constexpr):
    """Returns four words of 32 bits for the rows and groups of four keys numbered `group`."""
    at_query = as_column((query + dropout.query_offset).to(tl.uint32), KEYS_FIRST)
    at_head = as_column((tl.zeros_like(query) + head).to(tl.uint32), KEYS_FIRST)
    return tl.philox(dropout.seed, as_column(group.to(tl.uint32), not KEYS_FIRST), at_query, at_head, dropout.batch)


@triton.jit
def kept_weights(
    dropout, head, query, start, ROWS: tl.constexpr, KEYS: tl.constexpr, FOURS: tl.constexpr, KEYS_FIRST: tl.constexpr
):  # fmt: skip
    """Returns which weights of a tile are kept. start: its first key, a multiple of KEYS."""
    # The sum with the offset may exceed int32, but not that of their groups of four.
    first = start // 4 + dropout.key_offset // 4
    if FOURS:
        # Four neighbouring keys share one draw, which is a quarter of the work.
        a, b, c, d = words_of(dropout, head, query, first + tl.arange(0, KEYS // 4), KEYS_FIRST)
        least = dropout.least
        drawn = (
            (a >= least).to(tl.int32) + (b >= least).to(tl.int32) * 2 + (c >= least).to(tl.int32) * 4 + (d >= least).to(tl.int32) * 8
        )
        if KEYS_FIRST:
            drawn = tl.sum(drawn[:, :, None], 2)
            bits = drawn[:, None, :] >> tl.arange(0, 4)[None, :, None]
            return tl.reshape(bits & 1, [KEYS, ROWS]) != 0
        else:
            drawn = tl.sum(drawn[:, None, :], 1)
            bits = drawn[:, :, None] >> tl.arange(0, 4)[None, None, :]
            return tl.reshape(bits & 1, [ROWS, KEYS]) != 0
    else:
        # Part of a sequence may begin within a group of four.
        key = dropout.key_offset % 4 + tl.arange(0, KEYS)
        a, b, c, d = words_of(dropout, head, query, first + key // 4, KEYS_FIRST)
        word = as_column(key % 4, not KEYS_FIRST)
        bits = tl.where(word < 2, tl.where(word == 0, a, b), tl.where(word == 2, c, d))
        return bits >= dropout.least
