"""Writes new keys or values into the pages of a cache."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["pages", "page_size"])
def write_kernel(
    rows, cache, slots, stride_rh, stride_rt, stride_rd, stride_cp, stride_ch, stride_cn, stride_cd, pages, page_size, columns,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Program (token, head): copies a row of [heads, tokens, columns] to its slot, unless that is negative or past the cache."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    slot = tl.load(slots + token)
    column = tl.arange(0, COLUMNS)
    if (slot >= 0) & (slot // page_size < pages):
        row = tl.load(rows + head * stride_rh + token * stride_rt + column * stride_rd, mask=column < columns, other=0)
        to = slot // page_size * stride_cp + head * stride_ch + slot % page_size * stride_cn
        tl.store(cache + to + column * stride_cd, row, mask=column < columns)
