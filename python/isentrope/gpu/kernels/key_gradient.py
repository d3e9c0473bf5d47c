"""Keys against the queries that see them: dk and dv. Tiles lie transposed, [keys, queries]."""

from __future__ import annotations

import triton
import triton.language as tl

from isentrope.gpu.kernels.gradient_tile import lifted, load_query_block, memory_of, tile_gradients
from isentrope.gpu.kernels.softmax import apply_masks
from isentrope.gpu.kernels.span import Span, count_of, program, span_of_query_blocks, tile_at
from isentrope.gpu.kernels.tile import F16_LIFT, Matrix, dot, each, finite_part, load_rows, narrow, reach, store_rows, zeros


@triton.jit
def visit_queries(
    tile, head, dk, dv, unit, wrong, k_tile, v_tile, key, first_key, inside, memory, cap,
    SHAPE: tl.constexpr, GIVEN: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """A key block takes up the gradient of one query block."""
    query = tile * SHAPE.ROWS + tl.arange(0, SHAPE.ROWS)
    block = load_query_block(memory, head, query, SHAPE, GIVEN, MASKED)
    nothing = zeros(SHAPE.KEYS, SHAPE.ROWS)
    scores = dot(k_tile, tl.trans(block.q), nothing, SHAPE)
    dp = dot(v_tile, tl.trans(block.upstream), nothing, SHAPE)
    p, _, ds, _ = tile_gradients(scores, dp, block, key, first_key, inside, cap, SHAPE, GIVEN, MASKED, True)
    if block.upstream.dtype == tl.float16:
        p = p * F16_LIFT
    upstream, wrong = finite_part(block.upstream, wrong, MASKED)
    dv = dot(narrow(p, upstream.dtype), upstream, dv, SHAPE)
    ds, unit, rescale = lifted(ds, unit, block.q.dtype)
    if block.q.dtype == tl.float16:
        dk = dk * rescale[:, None]
    q, wrong = finite_part(block.q, wrong, MASKED)
    return dot(ds, q, dk, SHAPE), dv, unit, wrong


@triton.jit
def visit_wrong_queries(tile, head, dk, dv, key, inside, memory, SHAPE: tl.constexpr, GIVEN: tl.constexpr):
    """The queries and upstream gradients of a query block that are no numbers reach the keys that their rows see."""
    query = tile * SHAPE.ROWS + tl.arange(0, SHAPE.ROWS)
    block = load_query_block(memory, head, query, SHAPE, GIVEN, True)
    nothing = zeros(SHAPE.KEYS, SHAPE.ROWS)
    _, seen = apply_masks(nothing, block.view, block.scales.on_bias, key, inside, SHAPE, True)
    return reach(seen, block.q, dk, SHAPE), reach(seen, block.upstream, dv, SHAPE)


@triton.jit(do_not_specialize=["heads", "kv_heads", "queries", "keys", "dim", "value_dim", "scale_batches",
                               "scale_heads", "least", "query_offset", "key_offset"])  # fmt: skip
def key_gradient_kernel(
    q, k, v, d_output, terms, dk, dv, begins, ends, tiles, scales, attn_mask, bias,
    stride_qb, stride_qh, stride_qn, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_gb, stride_gh, stride_gn, stride_gd,
    stride_rb, stride_rh, stride_rn, stride_rd, stride_wb, stride_wh, stride_wn, stride_wd,
    stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
    heads, kv_heads, queries, keys, dim, value_dim, scale_batches, scale_heads, cap,
    seed, least, kept_factor, query_offset, key_offset,
    SHAPE: tl.constexpr, GIVEN: tl.constexpr,
):  # fmt: skip
    """Program (batch x key head x tile of keys): dk and dv, summed over all query heads that read the key head."""
    tile, lane, lanes = program(tl.cdiv(keys, SHAPE.KEYS))
    first_key = tile * SHAPE.KEYS
    key = first_key + tl.arange(0, SHAPE.KEYS)
    inside = key < keys
    batch, kv_head = (lane // kv_heads).to(tl.int64), (lane % kv_heads).to(tl.int64)
    group = heads // kv_heads
    wide = key.to(tl.int64)
    at = batch * stride_kb + kv_head * stride_kh + wide * stride_kn
    k_tile = load_rows(Matrix(k, stride_kn, stride_kd, dim), at, inside, SHAPE.DIM, True, SHAPE.EVEN)
    at = batch * stride_vb + kv_head * stride_vh + wide * stride_vn
    v_tile = load_rows(Matrix(v, stride_vn, stride_vd, value_dim), at, inside, SHAPE.COLUMNS, True, SHAPE.EVEN_COLUMNS)
    memory = memory_of(
        batch, q, d_output, terms, scales, begins, ends, attn_mask, bias,
        stride_qb, stride_qh, stride_qn, stride_qd, stride_gb, stride_gh, stride_gn, stride_gd,
        stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
        lanes // kv_heads, heads, queries, dim, value_dim, scale_batches, scale_heads,
        seed, least, kept_factor, query_offset, key_offset, SHAPE,
    )  # fmt: skip

    acc_k = zeros(SHAPE.KEYS, SHAPE.DIM)
    acc_v = zeros(SHAPE.KEYS, SHAPE.COLUMNS)
    unit = each(SHAPE.KEYS, 1e-30, tl.float32)
    wrong = each(SHAPE.ROWS, 0, tl.int32)
    count = tl.cdiv(queries, SHAPE.ROWS)
    its_tiles = tiles + (batch % scale_batches) * count * 4
    span = span_of_query_blocks(its_tiles, count, first_key, tl.minimum(first_key + SHAPE.KEYS, keys))
    if SHAPE.MASKED:
        span = Span(span.first, span.last, span.last, span.last)
    for masked in tl.static_range(2):
        if masked == 1 or not SHAPE.MASKED:
            blocks = count_of(span, masked == 1)
            for step in tl.range(0, blocks * group, num_stages=SHAPE.STAGES):
                acc_k, acc_v, unit, wrong = visit_queries(
                    tile_at(step % blocks, span, masked == 1), kv_head * group + step // blocks, acc_k, acc_v, unit,
                    wrong, k_tile, v_tile, key, first_key, inside, memory, cap, SHAPE, GIVEN, masked == 1,
                )  # fmt: skip
    if tl.max(wrong, 0) > 0:
        blocks = count_of(span, True)
        for step in range(0, blocks * group):
            acc_k, acc_v = visit_wrong_queries(
                tile_at(step % blocks, span, True), kv_head * group + step // blocks, acc_k, acc_v, key, inside, memory,
                SHAPE, GIVEN,
            )  # fmt: skip
    if k_tile.dtype == tl.float16:
        acc_k = acc_k * (unit * (1.0 / F16_LIFT))[:, None]
        acc_v = acc_v * (1.0 / F16_LIFT)
    acc_v = acc_v * kept_factor
    at = batch * stride_rb + kv_head * stride_rh + wide * stride_rn
    store_rows(Matrix(dk, stride_rn, stride_rd, dim), at, inside, acc_k, SHAPE.DIM, SHAPE.EVEN)
    at = batch * stride_wb + kv_head * stride_wh + wide * stride_wn
    store_rows(Matrix(dv, stride_wn, stride_wd, value_dim), at, inside, acc_v, SHAPE.COLUMNS, SHAPE.EVEN_COLUMNS)
