"""Resolves masks and rule once per call, into the keys that each row sees and its softmax scale.

The other kernels read these numbers, never masks or rules. The arithmetic is that of src/call/mask.cc.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from isentrope.gpu.kernels.softmax import LOG2E
from isentrope.gpu.kernels.span import program

FAR = tl.constexpr(1 << 62)
# Limit of own keys, which may be outside the call, so that differences fit in int32.
FAR_KEY = tl.constexpr((1 << 31) - 1)
FAR_BEFORE = tl.constexpr(-(1 << 30))
MOST = tl.constexpr(3.4028234663852886e38)


@triton.jit
def document_of(query, starts, documents):
    """Returns the last document that begins at or before each query; empty ones may begin there too."""
    low = tl.zeros_like(query)
    high, width = low + documents, documents
    while width > 1:
        middle = (low + high) // 2
        apart = high - low > 1
        up = tl.load(starts + middle) <= query
        low = tl.where(apart & up, middle, low)
        high = tl.where(apart & (up == 0), middle, high)
        width = (width + 1) // 2
    return low


@triton.jit
def span_of(query, cu_seqlens_q, cu_seqlens_k, documents, queries, keys, DOCUMENTS: tl.constexpr):
    """Returns the document of each query, or the whole call: its first query, queries, first key and keys."""
    zero = tl.zeros_like(query)
    if DOCUMENTS:
        low = document_of(query, cu_seqlens_q, documents)
        first_query = tl.load(cu_seqlens_q + low)
        first_key = tl.load(cu_seqlens_k + low)
        first_key = tl.minimum(tl.maximum(first_key, 0), keys)
        span_keys = tl.minimum(tl.load(cu_seqlens_k + low + 1), keys) - first_key
        return first_query, tl.load(cu_seqlens_q + low + 1) - first_query, first_key, tl.maximum(span_keys, 0)
    else:
        return zero, zero + queries, zero, zero + keys


@triton.jit
def row_view(
    query, batch, queries, keys, causal, window_left, window_right, query_offset, key_offset, sequence_keys,
    dilation, chunk_size, key_begin, key_end, prefix_keys, cu_seqlens_q, cu_seqlens_k, documents,
    HAS_KEY_BEGIN: tl.constexpr, HAS_KEY_END: tl.constexpr, HAS_PREFIX_KEYS: tl.constexpr, DOCUMENTS: tl.constexpr,
):  # fmt: skip
    """Returns what structural masks leave each row of this call, all int64. It is the keys begin ... end - 1, with a
    dilation every dilation-th from begin on; the row's length for rules (visible keys, position, total); and the key at
    the row's own position."""
    first_query, span_queries, first_key, span_keys = span_of(
        query, cu_seqlens_q, cu_seqlens_k, documents, queries, keys, DOCUMENTS
    )
    # The last query is at the last key, except with top_left and in a part of a sequence.
    meets = (causal != 1) & (sequence_keys == 0)
    shift = tl.where(meets, span_keys - span_queries, 0)
    position = query - first_query + query_offset + shift
    total = tl.where(sequence_keys > 0, sequence_keys, key_offset + span_keys)
    begin = tl.zeros_like(query) + tl.where(sequence_keys > 0, 0, key_offset)
    end = total
    padding = tl.zeros_like(query)
    if HAS_KEY_BEGIN:
        padding += tl.minimum(tl.maximum(tl.load(key_begin + batch).to(tl.int64), 0), FAR)
        begin = tl.maximum(begin, padding)
    if HAS_KEY_END:
        end = tl.minimum(tl.maximum(tl.load(key_end + batch).to(tl.int64), 0), total)
    last = end
    unpadded = tl.maximum(end - begin, 0)
    end = tl.where(causal != 0, tl.minimum(end, position + 1), end)
    begin = tl.where(window_left >= 0, tl.maximum(begin, position - window_left), begin)
    right = (window_right >= 0) & (window_right < total - position)
    end = tl.where(right, tl.minimum(end, position + window_right + 1), end)
    if HAS_PREFIX_KEYS:
        prefix = tl.minimum(tl.maximum(tl.load(prefix_keys + batch).to(tl.int64), 0), FAR - padding)
        end = tl.maximum(end, tl.minimum(padding + prefix, last))
    # Chunks count from the first key after padding; a remainder has the sign of the position.
    size = tl.maximum(chunk_size, 1)
    past = (position - padding) % size
    chunk = position - tl.where(past < 0, past + size, past)
    begin = tl.where(chunk_size > 0, tl.maximum(begin, chunk), begin)
    end = tl.where(chunk_size > 0, tl.minimum(end, chunk + size), end)

    # Keeps keys whose distance from the row's position is a multiple of the dilation.
    step = tl.maximum(dilation, 1)
    past = (position - begin) % step
    begin += tl.where(past < 0, past + step, past)
    visible = (tl.maximum(end - begin, 0) + step - 1) // step
    here = first_key - key_offset
    begin_here = begin + here
    before = tl.maximum(first_key - begin_here, 0)
    begin_here += (before + step - 1) // step * step
    end_here = tl.minimum(end + here, first_key + span_keys)
    some = end_here > begin_here
    begin_here, end_here = tl.where(some, begin_here, 0), tl.where(some, end_here, 0)
    return begin_here, end_here, visible, position - padding, unpadded, position + here


@triton.jit
def in_range(x):
    """Clamps a finite number to the range of float32, which a rule may exceed."""
    return tl.where(x > MOST, MOST, tl.where(x < -MOST, -MOST, x))


class RuleTables(NamedTuple):
    """Factors of a rule by length, in double: of visible keys from 0 on, of positions from `position_first` on, and of
    the total from 0 on. Each table is [3, heads, count]: before the soft-cap, after it, and on the bias."""

    heads: tl.tensor
    visible: tl.tensor
    visible_count: tl.tensor
    position: tl.tensor
    position_first: tl.tensor
    position_count: tl.tensor
    total: tl.tensor
    total_count: tl.tensor


@triton.jit
def factors_of(table, head, heads, u, first, count):
    """Returns a table's factors for length u: before the soft-cap, after it, and on the bias."""
    index = tl.minimum(tl.maximum(u - first, 0), count - 1)
    lane = head % heads
    before = tl.load(table + lane * count + index)
    after = tl.load(table + (heads + lane) * count + index)
    return before, after, tl.load(table + (2 * heads + lane) * count + index)


@triton.jit
def product_of(a, b):
    """Returns the products of two triples of factors."""
    return a[0] * b[0], a[1] * b[1], a[2] * b[2]


@triton.jit
def rule_scales(tables, head, visible, position, total, POSITION: tl.constexpr, TOTAL: tl.constexpr):
    """Returns a rule's scales of rows, in double: before the soft-cap, after it, and on the bias."""
    scales = factors_of(tables.visible, head, tables.heads, visible, 0, tables.visible_count)
    if POSITION:
        scales = product_of(
            scales, factors_of(tables.position, head, tables.heads, position, tables.position_first, tables.position_count)
        )
    if TOTAL:
        scales = product_of(scales, factors_of(tables.total, head, tables.heads, total, 0, tables.total_count))
    return tl.where(visible < 1, 0.0, scales[0]), scales[1], scales[2]


@triton.jit
def store_scales(scales, to_lambda, before, after, on_bias, to, plane, rows, TO_LAMBDA: tl.constexpr):
    """Stores scales of rows, which are in double, as float32, and with TO_LAMBDA the statistic lambda."""
    before = in_range(before).to(tl.float32)
    after = in_range(after).to(tl.float32)
    on_bias = in_range(on_bias).to(tl.float32)
    tl.store(scales + to, in_range(before.to(tl.float64) * LOG2E).to(tl.float32), mask=rows)
    tl.store(scales + plane + to, after, mask=rows)
    tl.store(scales + 2 * plane + to, in_range(on_bias.to(tl.float64) * LOG2E).to(tl.float32), mask=rows)
    if TO_LAMBDA:
        tl.store(to_lambda + to, before * after, mask=rows)


@triton.jit
def store_ranges(
    begins, ends, own_keys, tiles, begin, end, own_key, batch, tile, index, rows, queries, ROWS: tl.constexpr
):  # fmt: skip
    """Stores the keys that rows see, and the least and largest of their bounds for the tile."""
    to = batch.to(tl.int64) * queries + index
    tl.store(begins + to, begin.to(tl.int32), mask=rows)
    tl.store(ends + to, end.to(tl.int32), mask=rows)
    tl.store(own_keys + to, tl.minimum(tl.maximum(own_key, FAR_BEFORE), FAR_KEY).to(tl.int32), mask=rows)
    summary = tiles + (batch.to(tl.int64) * tl.cdiv(queries, ROWS) + tile) * 4
    some = rows & (end > begin)
    tl.store(summary, tl.min(tl.where(some, begin, 2147483647), 0).to(tl.int32))
    tl.store(summary + 1, tl.max(tl.where(some, end, 0), 0).to(tl.int32))
    tl.store(summary + 2, tl.max(begin, 0).to(tl.int32))
    # Empty rows and rows past the end have end 0, so a tile that contains one counts as masked for every key.
    tl.store(summary + 3, tl.min(tl.where(rows, end, 0), 0).to(tl.int32))


@triton.jit
def count_visible(visible, attn_mask, stride_mk, begin, end, dilation, KEYS: tl.constexpr):
    """Returns the number of keys that a boolean mask leaves each row. attn_mask: pointers to the rows' masks."""
    visible = tl.zeros_like(visible)
    # Remainders of int64 take so many registers that some chips spill.
    begin, end = begin.to(tl.int32), end.to(tl.int32)
    step = tl.minimum(tl.maximum(dilation, 1), FAR_KEY).to(tl.int32)
    for start in range(tl.min(begin, 0), tl.max(end, 0), KEYS):
        key = start + tl.arange(0, KEYS)
        seen = (key[None, :] >= begin[:, None]) & (key[None, :] < end[:, None])
        seen = seen & ((key[None, :] - begin[:, None]) % step == 0)
        found = tl.load(attn_mask[:, None] + key[None, :].to(tl.int64) * stride_mk, mask=seen, other=0) != 0
        visible += tl.sum((found & seen).to(tl.int32), 1)
    return visible


@triton.jit(do_not_specialize=["batches", "heads", "queries", "keys", "documents", "visible_count", "position_first",
                               "position_count", "total_count", "rule_heads", "window_left", "window_right",
                               "query_offset", "key_offset", "sequence_keys", "dilation", "chunk_size", "causal",
                               "stride_lb", "stride_lh", "stride_lq"])  # fmt: skip
def rows_kernel(
    begins, ends, own_keys, scales, tiles, to_lambda, lengths,
    lambda_, stride_lb, stride_lh, stride_lq,
    attn_mask, stride_mb, stride_mh, stride_mq, stride_mk,
    documents, used, starts,
    visible_table, visible_count, position_table, position_first, position_count, total_table, total_count, rule_heads,
    batches, heads, queries, keys,
    key_begin, key_end, prefix_keys, cu_seqlens_q, cu_seqlens_k,
    causal, window_left, window_right, query_offset, key_offset, sequence_keys, dilation, chunk_size,
    HAS_KEY_BEGIN: tl.constexpr, HAS_KEY_END: tl.constexpr, HAS_PREFIX_KEYS: tl.constexpr,
    HAS_CU_SEQLENS_Q: tl.constexpr, HAS_CU_SEQLENS_K: tl.constexpr, LAMBDA: tl.constexpr, TO_LAMBDA: tl.constexpr, COUNT: tl.constexpr,
    POSITION: tl.constexpr, TOTAL: tl.constexpr, LENGTHS: tl.constexpr, USED: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Program (batch x head x tile): stores scales, lengths and key ranges of its rows. For rows [batches, heads,
    queries]: scales f32 [3, ...], lengths int64, and with TO_LAMBDA the statistic lambda f32. The scales are lambda in
    log2 before the soft-cap, the factor after it, and that of the bias in log2. For rows [batches, queries]: begins,
    ends, own_keys int32, and for each tile of ROWS rows tiles int32 [..., 4]: least begin, largest end, largest begin,
    least end. starts: beginnings of the packed queries of `documents` sequences, or None."""
    tile, lane, _ = program(tl.cdiv(queries, ROWS))
    batch, head = lane // heads, lane % heads
    index = tile * ROWS + tl.arange(0, ROWS)
    rows = index < queries
    query = tl.minimum(index, queries - 1).to(tl.int64)
    sequence, own_query, own_queries = batch, query, queries
    if starts is not None:
        sequence = document_of(query, starts, documents)
        own_query = query - tl.load(starts + sequence)
        own_queries = tl.load(starts + sequence + 1) - tl.load(starts + sequence)
    if USED:
        # Sequences of a cache differ in length, and their queries are the last of each.
        keys = tl.minimum(tl.maximum(tl.load(used + sequence), 0), keys).to(tl.int64)
    begin, end, visible, position, total, own_key = row_view(
        own_query, sequence, own_queries, keys, causal, window_left, window_right, query_offset, key_offset, sequence_keys,
        dilation, chunk_size, key_begin, key_end, prefix_keys, cu_seqlens_q, cu_seqlens_k, documents,
        HAS_KEY_BEGIN, HAS_KEY_END, HAS_PREFIX_KEYS, HAS_CU_SEQLENS_Q,
    )  # fmt: skip
    if head == 0:
        store_ranges(begins, ends, own_keys, tiles, begin, end, own_key, batch, tile, index, rows, queries, ROWS)
    if COUNT:
        # Keys hidden by a boolean mask do not count in n.
        base = attn_mask + batch.to(tl.int64) * stride_mb + head.to(tl.int64) * stride_mh + query * stride_mq
        visible = count_visible(visible, base, stride_mk, begin, end, dilation, KEYS)
    plane = batches.to(tl.int64) * heads * queries
    to = lane.to(tl.int64) * queries + index
    if LENGTHS:
        tl.store(lengths + to, visible, mask=rows)
    else:
        if LAMBDA:
            at = lambda_ + batch.to(tl.int64) * stride_lb + head.to(tl.int64) * stride_lh + query * stride_lq
            before = tl.load(at).to(tl.float64)
            after = tl.full([ROWS], 1.0, tl.float64)
            on_bias = after
        else:
            tables = RuleTables(
                rule_heads, visible_table, visible_count, position_table, position_first, position_count,
                total_table, total_count,
            )  # fmt: skip
            before, after, on_bias = rule_scales(tables, head, visible, position, total, POSITION, TOTAL)
        store_scales(scales, to_lambda, before, after, on_bias, to, plane, rows, TO_LAMBDA)
