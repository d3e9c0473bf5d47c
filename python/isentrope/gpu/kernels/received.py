"""Keys against the queries that see them: the weight that each key receives. Tiles are transposed, [keys, queries]."""

from __future__ import annotations

import triton
import triton.language as tl

from isentrope.gpu.kernels.block import offsets_of_keys
from isentrope.gpu.kernels.gradient_tile import block_sees, load_query_block, memory_of, tile_weights
from isentrope.gpu.kernels.span import load_span, program, visit_all
from isentrope.gpu.kernels.tile import F16_FACTOR, Matrix, dot, full, load_rows, zeros


@triton.jit
def receive_from(
    tile, sums, memory, head, first_key, k_tile, key, inside, cap, GIVEN: tl.constexpr, SHAPE: tl.constexpr, MASKED: tl.constexpr
):  # fmt: skip
    """Adds what the rows of one query block give to a tile of keys. Rows of weight 0 give nothing, even if NaN."""
    block = load_query_block(memory, head, tile * SHAPE.ROWS, SHAPE, GIVEN, MASKED)
    scores = dot(k_tile, tl.trans(block.q), zeros(SHAPE.KEYS, SHAPE.ROWS), SHAPE)
    weights = tile_weights(scores, block, key, first_key, inside, cap, SHAPE, MASKED, True)
    of_row = tl.sum(block.upstream.to(tl.float32), 1)  # the only column
    counted = (of_row != 0)[None, :]
    if MASKED:
        counted = counted & weights.seen
    if GIVEN.SINK:
        of_row *= block.terms.share
    return sums + tl.sum(tl.where(counted, weights.p * of_row[None, :], 0.0), 1)


@triton.jit(do_not_specialize=["heads", "kv_heads", "queries", "keys", "dim", "stride_table", "span_batches", "least", "query_offset", "key_offset"])  # fmt: skip
def received_kernel(
    q, k, row_weights, terms, received, spans, attn_mask, bias, table, used,
    stride_qb, stride_qh, stride_qn, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_gb, stride_gh, stride_gn, stride_gd,
    stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
    heads, kv_heads, queries, keys, dim, stride_table, span_batches, cap,
    seed, least, kept_factor, query_offset, key_offset,
    SHAPE: tl.constexpr, GIVEN: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """Program (batch x query head x tile of keys): stores received f32 [batch, heads, keys]. used: keys of each sequence of a
    cache in pages of PAGE keys.

    row_weights [batch, heads, queries, 1] are loaded as upstream gradients of one column are."""
    tile, lane, _ = program(tl.cdiv(keys, SHAPE.KEYS))
    first_key = tile * SHAPE.KEYS
    key = first_key + tl.arange(0, SHAPE.KEYS)
    inside = key < keys
    batch, head = (lane // heads).to(tl.int64), lane % heads
    k += (head // (heads // kv_heads)).to(tl.int64) * stride_kh
    there = inside
    if PAGE > 0:
        table += batch * stride_table
        there = key < tl.minimum(tl.load(used + batch), keys)
    else:
        k += batch * stride_kb
    k_rows = Matrix(k, stride_kn, stride_kd, dim)
    offsets = offsets_of_keys(tl.where(there, key, 0), k_rows, stride_kb, table, PAGE)
    k_tile = load_rows(k_rows, offsets, there, SHAPE.DIM, True, SHAPE.EVEN)
    memory = memory_of(
        batch, q, row_weights, terms, attn_mask, bias,
        stride_qb, stride_qh, stride_qn, stride_qd, stride_gb, stride_gh, stride_gn, stride_gd,
        stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
        heads, queries, dim, 1,
        seed, least, kept_factor, query_offset, key_offset, SHAPE,
    )  # fmt: skip
    span = load_span(spans, (batch % span_batches) * tl.cdiv(keys, SHAPE.KEYS) + tile, SHAPE.MASKED)
    sums = visit_all(
        span, block_sees, (memory, head, first_key), receive_from, full(SHAPE.KEYS, 0.0, tl.float32),
        (k_tile, key, inside, cap, GIVEN), SHAPE,
    )  # fmt: skip
    if k_tile.dtype == tl.float16:
        sums = sums / F16_FACTOR
    tl.store(received + lane.to(tl.int64) * keys + key, sums, mask=inside)
