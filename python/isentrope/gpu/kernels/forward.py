"""The forward pass: a query block against all the keys it sees, or against one of several shares of them."""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from isentrope.gpu.kernels.dropout import Dropout, dropout_of, kept_weights
from isentrope.gpu.kernels.results import store_share, write_rows
from isentrope.gpu.kernels.softmax import LEAST, Scales, View, apply_masks, load_scales, logits_of
from isentrope.gpu.kernels.span import Span, count_of, program_from_the_end, share_of, some_sees, span_of_keys, tile_at
from isentrope.gpu.kernels.sums import RowState, add_moments, farther, from_own, like_sums, no_sums, of_rows, raised, rebase
from isentrope.gpu.kernels.tile import (
    F16_LIFT,
    Matrix,
    dot,
    each,
    finite_part,
    load_rows,
    load_tile,
    mark_rows,
    moved,
    narrow,
    nothing_of,
    reach,
    zeros,
)


class QueryBlock(NamedTuple):
    """A tile of queries, the scales of its rows, what they see, the key at each row's own position, and by what dropout
    tells them."""

    q: tl.tensor
    scales: Scales
    view: View
    own_key: tl.tensor
    dropout: Dropout
    head: tl.tensor
    query: tl.tensor


class Cache(NamedTuple):
    """Keys and values, in pages that `table` lists, or all in one, of which some row of the block sees start ... stop - 1."""

    k: Matrix
    v: Matrix
    k_to_page: tl.tensor
    v_to_page: tl.tensor
    table: tl.tensor
    start: tl.tensor
    stop: tl.tensor


@triton.jit
def rows_of_block(tile, kv_head, group, queries, ROWS: tl.constexpr, PACKED: tl.constexpr):
    """Head and query of each row of a query block: of one query head, or, packed, of all those that share a key head."""
    index = tile * ROWS + tl.arange(0, ROWS)
    if PACKED:
        return kv_head * group + index // queries, index % queries, index < group * queries
    else:
        return tl.zeros_like(index) + kv_head, index, index < queries


@triton.jit
def load_keys(matrix, to_page, first, inside, cache, KEYS: tl.constexpr, COLUMNS: tl.constexpr, MASKED: tl.constexpr,
              EVEN: tl.constexpr, PAGE: tl.constexpr):  # fmt: skip
    """A tile of keys or of values: behind one another, or each PAGE of them where the table says."""
    if PAGE > 0:
        keys = tl.where(inside, first + tl.arange(0, KEYS), cache.start)
        offsets = tl.load(cache.table + keys // PAGE).to(tl.int64) * to_page + (keys % PAGE).to(tl.int64) * matrix.to_row
        return load_rows(matrix, offsets, inside, COLUMNS, MASKED, EVEN)
    else:
        return load_tile(moved(matrix, first), inside, KEYS, COLUMNS, MASKED, EVEN)


@triton.jit
def visit_keys(
    start, state, support, acc, block, cache, cap,
    SHAPE: tl.constexpr, WANTED: tl.constexpr, PAGE: tl.constexpr, MASKED: tl.constexpr, REPAIR: tl.constexpr, CHECKED: tl.constexpr,
):  # fmt: skip
    """One tile of keys joins a query block's sums. MASKED: it may hide something from some row. CHECKED: sums that are no
    numbers will be found, and be taken once more with REPAIR."""
    key = start + tl.arange(0, SHAPE.KEYS)
    inside = (key >= cache.start) & (key < cache.stop)
    k_tile = load_keys(cache.k, cache.k_to_page, start, inside, cache, SHAPE.KEYS, SHAPE.DIM, MASKED, SHAPE.EVEN, PAGE)
    scores = dot(block.q, tl.trans(k_tile), zeros(SHAPE.ROWS, SHAPE.KEYS), SHAPE)
    lifted: tl.constexpr = block.q.dtype == tl.float16
    # In log2, so that it comes with the origin; but a moment wants t to its last digit.
    early: tl.constexpr = F16_LIFT if lifted and WANTED.MOMENTS == 0 else 0.0
    late: tl.constexpr = F16_LIFT if lifted and WANTED.MOMENTS > 0 else 0.0
    if MASKED or SHAPE.CAPPED:
        logits, _ = logits_of(scores, block.scales, cap, SHAPE.CAPPED, False)
        if MASKED:
            logits, seen = apply_masks(logits, block.view, block.scales.on_bias, key, inside, SHAPE, False)
            if SHAPE.MASKED:
                support += tl.sum(seen.to(tl.int32), 1)
        m, origin, rescale, shift = raised(state.m, tl.max(logits, 1))
        t = logits - (origin - early)[:, None]
    else:
        # The largest score makes the largest logit, and each t is one multiply-add.
        m, origin, rescale, shift = raised(state.m, tl.max(scores, 1) * block.scales.before)
        t = scores * block.scales.before[:, None] - (origin - early)[:, None]
    if late > 0:
        w = tl.exp2(t + late)
    else:
        w = tl.exp2(t)
    if MASKED or SHAPE.CAPPED or not CHECKED:
        t = tl.maximum(t, LEAST)
    FROM_LAST: tl.constexpr = SHAPE.OWN_LAST and not MASKED
    if FROM_LAST:
        state = farther(state, SHAPE.KEYS)
    state = rebase(state, m, like_sums(rescale, SHAPE), like_sums(shift, SHAPE), WANTED)
    state = add_moments(state, t, w, block.own_key, key, start, SHAPE, WANTED, FROM_LAST)
    v_tile = load_keys(
        cache.v, cache.v_to_page, start, inside, cache, SHAPE.KEYS, SHAPE.COLUMNS, MASKED, SHAPE.EVEN_COLUMNS, PAGE
    )  # fmt: skip
    if SHAPE.DROPOUT:
        kept = kept_weights(
            block.dropout, block.head, block.query, start, SHAPE.ROWS, SHAPE.KEYS, SHAPE.FOURS, False
        )  # fmt: skip
        w = tl.where(kept, w, 0.0)
    if MASKED and REPAIR:
        v_tile = finite_part(v_tile)
    acc = dot(narrow(w, v_tile.dtype), v_tile, acc * rescale[:, None], SHAPE)
    return state, support, acc


@triton.jit
def visit_wrong_values(start, acc, block, cache, SHAPE: tl.constexpr, PAGE: tl.constexpr):
    """The values of a tile that are no numbers reach the rows that see them."""
    key = start + tl.arange(0, SHAPE.KEYS)
    inside = (key >= cache.start) & (key < cache.stop)
    v_tile = load_keys(
        cache.v, cache.v_to_page, start, inside, cache, SHAPE.KEYS, SHAPE.COLUMNS, True, SHAPE.EVEN_COLUMNS, PAGE
    )  # fmt: skip
    nothing = zeros(SHAPE.ROWS, SHAPE.KEYS)
    _, seen = apply_masks(nothing, block.view, block.scales.on_bias, key, inside, SHAPE, False)
    return reach(seen, v_tile, acc, SHAPE)


@triton.jit(do_not_specialize=["heads", "kv_heads", "queries", "keys", "stride_table", "scale_batches", "scale_heads",
                                "splits", "least", "query_offset", "key_offset"])  # fmt: skip
def forward_kernel(
    q, k, v, output, statistics, supports, begins, ends, own_keys, scales, sinks, attn_mask, bias, table, states, sums, wrong,
    stride_qb, stride_qh, stride_qn, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_on, stride_od,
    stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
    heads, kv_heads, queries, keys, dim, value_dim, stride_table, scale_batches, scale_heads, cap, splits,
    seed, least, kept_factor, query_offset, key_offset,
    SHAPE: tl.constexpr, WANTED: tl.constexpr, SINK: tl.constexpr, PAGE: tl.constexpr, PACKED: tl.constexpr,
    SPLIT: tl.constexpr, REPAIR: tl.constexpr,
):  # fmt: skip
    """Program (batch x head x query block, -, share): output and statistics, or with SPLIT the sums of its share of the keys.

    `wrong` int32 [share, batch x head x query block]: whether some sum is no number, be it that a row sees a value that is
    none, or that 0 times one that is hidden from it, or times a logit of -inf, is NaN. With REPAIR those programs start
    once more, with care, and all others return at once. None: nobody asks.
    """
    program = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
    if REPAIR:
        if tl.load(wrong + program) == 0:
            return
    group = heads // kv_heads
    own_heads, length = heads, queries
    if PACKED:
        own_heads, length = kv_heads, group * queries
    tile, lane, lanes = program_from_the_end(tl.cdiv(length, SHAPE.ROWS))
    batch, own = (lane // own_heads).to(tl.int64), lane % own_heads
    head, query, rows = rows_of_block(tile, own, group, queries, SHAPE.ROWS, PACKED)
    kv_head = own.to(tl.int64)
    if not PACKED:
        kv_head = (own // group).to(tl.int64)
    at_head, at_query = head.to(tl.int64), query.to(tl.int64)
    at = batch * stride_qb + at_head * stride_qh + at_query * stride_qn
    q_tile = load_rows(Matrix(q, stride_qn, stride_qd, dim), at, rows, SHAPE.DIM, True, SHAPE.EVEN)

    scale_row = ((batch % scale_batches) * scale_heads + head % scale_heads) * queries + query
    scale_plane = scale_batches.to(tl.int64) * scale_heads * queries
    bound = (batch % scale_batches) * queries + query
    begin, end = tl.load(begins + bound, mask=rows, other=0), tl.load(ends + bound, mask=rows, other=0)
    attn_mask += batch * stride_mb + at_head * stride_mh + at_query * stride_mq
    bias += batch * stride_bb + at_head * stride_bh + at_query * stride_bq
    own_key = begin
    if WANTED.DISTANCE >= 0:
        own_key = tl.load(own_keys + bound, mask=rows, other=0)
    view = View(rows, begin, end, attn_mask, bias, stride_mk, stride_bk)
    dropout = dropout_of(seed, least, kept_factor, batch, query_offset, key_offset, SHAPE)
    its_scales = load_scales(scales, scale_plane, scale_row, rows, SHAPE)
    block = QueryBlock(q_tile, its_scales, view, own_key, dropout, head, query)

    # A negative scale takes the loop that looks for the largest logit, not for the largest score.
    span = span_of_keys(view, tl.where(its_scales.before < 0, 0, end), SHAPE.KEYS)
    if SHAPE.MASKED:
        span = Span(span.first, span.last, span.last, span.last)
    if SPLIT:
        span = share_of(span, tl.program_id(2), splits)
    some = rows & (end > begin)
    start = tl.min(tl.where(some, begin, 2147483647), 0)
    stop = tl.minimum(span.last * SHAPE.KEYS, tl.max(tl.where(some, end, 0), 0))
    k += kv_head * stride_kh
    v += kv_head * stride_vh
    if PAGE > 0:
        table += batch * stride_table
    else:
        k += batch * stride_kb
        v += batch * stride_vb
    cache = Cache(
        Matrix(k, stride_kn, stride_kd, dim), Matrix(v, stride_vn, stride_vd, value_dim), stride_kb, stride_vb,
        table, start, stop,
    )  # fmt: skip

    zero = no_sums(SHAPE)
    state = RowState(each(SHAPE.ROWS, float("-inf"), tl.float32), zero, zero, zero, zero, zero)
    support = each(SHAPE.ROWS, 0, tl.int32)
    acc = zeros(SHAPE.ROWS, SHAPE.COLUMNS)
    for masked in tl.static_range(2):
        if masked == 1 or not SHAPE.MASKED:
            for step in tl.range(0, count_of(span, masked == 1), num_stages=SHAPE.STAGES):
                first_key = tile_at(step, span, masked == 1) * SHAPE.KEYS
                if SHAPE.DILATION <= SHAPE.KEYS or some_sees(rows, begin, end, first_key, SHAPE):
                    state, support, acc = visit_keys(
                        first_key, state, support, acc, block, cache, cap,
                        SHAPE, WANTED, PAGE, masked == 1, REPAIR, wrong is not None and not REPAIR,
                    )  # fmt: skip
        if masked == 0 and SHAPE.OWN_LAST:
            state = from_own(state, own_key, span.full_last * SHAPE.KEYS)
    state = of_rows(state)
    if not REPAIR and wrong is not None:
        nothing = nothing_of(acc)
        if WANTED.MOMENTS >= 1:
            nothing += tl.sum(state.s1 * 0.0, 0)
        if WANTED.MOMENTS >= 2:
            nothing += tl.sum(state.s1p * 0.0, 0)
        tl.store(wrong + program, nothing != nothing)

    row = (batch * heads + head) * queries + query
    plane = lanes.to(tl.int64) // own_heads * heads * queries
    if not SHAPE.MASKED:
        support = tl.maximum(tl.minimum(end, span.last * SHAPE.KEYS) - tl.maximum(begin, span.first * SHAPE.KEYS), 0)
    if SPLIT:
        store_share(states, sums, state, support, acc, row, rows, plane, WANTED, SHAPE.COLUMNS)
    else:
        sink = state.s0
        if SINK:
            sink = tl.load(sinks + head, mask=rows, other=0.0)
        place = batch * stride_ob + at_head * stride_oh + at_query * stride_on
        write_rows(
            state, acc, support > 0, support, sink, kept_factor, Matrix(output, stride_on, stride_od, value_dim), statistics, supports,
            plane, row, rows, place, WANTED, SINK, SHAPE.COLUMNS, SHAPE.EVEN_COLUMNS,
        )  # fmt: skip
    if REPAIR:
        # Behind the results, so that neither loop takes registers of the other.
        acc = zeros(SHAPE.ROWS, SHAPE.COLUMNS)
        for step in range(0, count_of(span, True)):
            acc = visit_wrong_values(tile_at(step, span, True) * SHAPE.KEYS, acc, block, cache, SHAPE, PAGE)
        if SPLIT:
            its_sums = Matrix(sums, SHAPE.COLUMNS, 1, SHAPE.COLUMNS)
            mark_rows(its_sums, (tl.program_id(2) * plane + row) * SHAPE.COLUMNS, rows, acc, SHAPE.COLUMNS, True)
        else:
            place = batch * stride_ob + at_head * stride_oh + at_query * stride_on
            mark_rows(Matrix(output, stride_on, stride_od, value_dim), place, rows, acc, SHAPE.COLUMNS, SHAPE.EVEN_COLUMNS)
