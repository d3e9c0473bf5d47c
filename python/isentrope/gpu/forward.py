"""The forward pass: a strip of rows against all the keys it sees, or against one of several shares of them."""

from __future__ import annotations

import triton
import triton.language as tl

from isentrope.gpu.tile import (
    F16_LIFT,
    LN2,
    add_moments,
    apply_masks,
    dot,
    finite_part,
    key_offsets,
    load_rows,
    logits_of,
    narrow,
    raised,
    reach,
    rebase,
    seen_keys,
    tile_range,
)


@triton.jit
def strip_of(tile, kv_head, group, queries, ROWS: tl.constexpr, PACKED: tl.constexpr):
    """Head and query of each row of a strip: of one query head, or, packed, of all those that share a key head."""
    index = tile * ROWS + tl.arange(0, ROWS)
    if PACKED:
        return kv_head * group + index // queries, index % queries, index < group * queries
    else:
        return tl.zeros_like(index) + kv_head, index, index < queries


@triton.jit
def write_rows(
    m, s0, s1, s1p, s2, s3, acc, some, support, sink, output, statistics, supports, plane, row, rows, place,
    columns, stride_column,
    LSE: tl.constexpr, ENTROPY: tl.constexpr, COLLISION: tl.constexpr, VARIANCE: tl.constexpr, MAX_LOGIT: tl.constexpr,
    DISTANCE: tl.constexpr, SUPPORT: tl.constexpr, SINK: tl.constexpr, COLUMNS: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Sums become results. `some`: rows that admit a key; the others are empty, whatever their sums hold.

    `LSE` ... `DISTANCE` say which slice of `statistics` is whose; -1: nobody asked.
    """
    log_s0 = tl.log2(s0) * LN2
    lse = tl.where(some, m * LN2 + log_s0, float("-inf"))
    factor = 1.0 / s0
    if SINK:
        factor = factor / (1.0 + tl.exp(sink - lse))
    if output.dtype.element_ty == tl.float16:
        acc = acc * (1.0 / F16_LIFT)
    result = narrow(tl.where(some[:, None], acc * factor[:, None], 0.0), output.dtype.element_ty)
    column = tl.arange(0, COLUMNS)
    at = output + place[:, None] + column[None, :].to(tl.int64) * stride_column
    if EVEN:
        tl.store(at, result, mask=rows[:, None])
    else:
        tl.store(at, result, mask=rows[:, None] & (column < columns)[None, :])
    if LSE >= 0:
        tl.store(statistics + LSE * plane + row, lse, mask=rows)
    mean = s1 / s0
    if ENTROPY >= 0:
        entropy = log_s0 - mean * LN2
        tl.store(statistics + ENTROPY * plane + row, tl.where(some, tl.where(entropy < 0, 0.0, entropy), 0.0), mask=rows)
    if COLLISION >= 0:
        collision = s2 / (s0 * s0)
        tl.store(statistics + COLLISION * plane + row, tl.where(some, collision, 0.0), mask=rows)
    if VARIANCE >= 0:
        variance = (s1p / s0 - mean * mean) * (LN2 * LN2)
        tl.store(statistics + VARIANCE * plane + row, tl.where(some, tl.where(variance < 0, 0.0, variance), 0.0), mask=rows)
    if MAX_LOGIT >= 0:
        most = tl.where(s0 != s0, s0, m * LN2)
        tl.store(statistics + MAX_LOGIT * plane + row, tl.where(some, most, float("-inf")), mask=rows)
    if DISTANCE >= 0:
        tl.store(statistics + DISTANCE * plane + row, tl.where(some, s3 / s0, 0.0), mask=rows)
    if SUPPORT:
        tl.store(supports + row, support.to(tl.int64), mask=rows)


@triton.jit
def visit_keys(
    start, m, s0, s1, s1p, s2, s3, support, acc, wrong, q, before, after, on_bias, begin, end, own_key, rows, last,
    k, v, table, page_size, stride_kp, stride_kn, stride_kd, stride_vp, stride_vn, stride_vd, dim, value_dim, cap,
    admitted, bias, stride_mk, stride_bk,
    MASKED: tl.constexpr, PAGED: tl.constexpr, CAPPED: tl.constexpr, ADMITTED: tl.constexpr, BIAS: tl.constexpr,
    MOMENTS: tl.constexpr, COLLISION: tl.constexpr, DISTANCE: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr,
    COLUMNS: tl.constexpr, EVEN: tl.constexpr, EVEN_COLUMNS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of keys joins a strip's sums. MASKED: it may hide something from some row."""
    key = start + tl.arange(0, KEYS)
    inside = key < last
    named = tl.where(inside, key, 0)
    k_tile = load_rows(
        k, key_offsets(named, table, page_size, stride_kp, stride_kn, PAGED), inside, dim, stride_kd, DIM, MASKED, EVEN
    )
    scores = dot(q, tl.trans(k_tile), tl.zeros([q.shape[0], KEYS], tl.float32), PRECISION)
    logits, _ = logits_of(scores, before[:, None], after[:, None], cap, CAPPED)
    seen = seen_keys(key[None, :], begin[:, None], end[:, None])
    if MASKED:
        logits, seen = apply_masks(
            logits, seen, rows[:, None] & inside[None, :], key[None, :], admitted[:, None], bias[:, None],
            on_bias[:, None], stride_mk, stride_bk, ADMITTED, BIAS,
        )  # fmt: skip
        if ADMITTED or BIAS:
            support += tl.sum(seen.to(tl.int32), 1)
    m, origin, keep, shift = raised(m, logits)
    t = logits - origin[:, None]
    w = tl.exp2(t)
    s0, s1, s1p, s2, s3 = rebase(keep, shift, s0, s1, s1p, s2, s3, MOMENTS, COLLISION, DISTANCE)
    distance = w
    if DISTANCE:
        distance = tl.abs(own_key[:, None] - key[None, :]).to(tl.float32)
    s0, s1, s1p, s2, s3 = add_moments(t, w, distance, s0, s1, s1p, s2, s3, MOMENTS, COLLISION, DISTANCE)
    v_tile = load_rows(
        v, key_offsets(named, table, page_size, stride_vp, stride_vn, PAGED), inside, value_dim, stride_vd, COLUMNS,
        MASKED, EVEN_COLUMNS,
    )  # fmt: skip
    if v_tile.dtype == tl.float16:
        w = w * F16_LIFT
    v_tile, wrong = finite_part(v_tile, wrong, MASKED)
    acc = dot(narrow(w, v_tile.dtype), v_tile, acc * keep[:, None], PRECISION)
    return m, s0, s1, s1p, s2, s3, support, acc, wrong


@triton.jit
def visit_wrong_values(
    start, acc, on_bias, begin, end, rows, last, v, table, page_size, stride_vp, stride_vn, stride_vd, value_dim,
    admitted, bias, stride_mk, stride_bk, PAGED: tl.constexpr, ADMITTED: tl.constexpr, BIAS: tl.constexpr,
    KEYS: tl.constexpr, COLUMNS: tl.constexpr, EVEN_COLUMNS: tl.constexpr,
):  # fmt: skip
    """The values of a tile that are no numbers reach the rows that admit them."""
    key = start + tl.arange(0, KEYS)
    inside = key < last
    named = tl.where(inside, key, 0)
    v_tile = load_rows(
        v, key_offsets(named, table, page_size, stride_vp, stride_vn, PAGED), inside, value_dim, stride_vd, COLUMNS,
        True, EVEN_COLUMNS,
    )  # fmt: skip
    nothing = tl.zeros([acc.shape[0], KEYS], tl.float32)
    _, seen = apply_masks(
        nothing, seen_keys(key[None, :], begin[:, None], end[:, None]), rows[:, None] & inside[None, :], key[None, :],
        admitted[:, None], bias[:, None], on_bias[:, None], stride_mk, stride_bk, ADMITTED, BIAS,
    )  # fmt: skip
    return reach(seen, v_tile, acc)


@triton.jit(do_not_specialize=["heads", "kv_heads", "queries", "keys", "page_size", "stride_table", "scale_batches",
                               "scale_heads", "splits"])  # fmt: skip
def forward_kernel(
    q, k, v, output, statistics, supports, begins, ends, own_keys, scales, sinks, admitted, bias, table, states, sums,
    stride_qb, stride_qh, stride_qn, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_on, stride_od,
    stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
    heads, kv_heads, queries, keys, dim, value_dim, page_size, stride_table, scale_batches, scale_heads, cap, splits,
    LSE: tl.constexpr, ENTROPY: tl.constexpr, COLLISION: tl.constexpr, VARIANCE: tl.constexpr, MAX_LOGIT: tl.constexpr,
    DISTANCE: tl.constexpr, SUPPORT: tl.constexpr, SINK: tl.constexpr, CAPPED: tl.constexpr, ADMITTED: tl.constexpr,
    BIAS: tl.constexpr, PAGED: tl.constexpr, PACKED: tl.constexpr, SPLIT: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr, COLUMNS: tl.constexpr, EVEN: tl.constexpr,
    EVEN_COLUMNS: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Program (strip, batch x head, share): output and statistics, or with SPLIT the sums of its share of the keys."""
    strips = heads
    if PACKED:
        strips = kv_heads
    batch, own = tl.program_id(1) // strips, tl.program_id(1) % strips
    group = heads // kv_heads
    head, query, rows = strip_of(tl.program_id(0), own, group, queries, ROWS, PACKED)
    kv_head = own
    if not PACKED:
        kv_head = own // group
    wide = batch.to(tl.int64)
    if PAGED:
        k += kv_head.to(tl.int64) * stride_kh
        v += kv_head.to(tl.int64) * stride_vh
        table += wide * stride_table
    else:
        k += wide * stride_kb + kv_head.to(tl.int64) * stride_kh
        v += wide * stride_vb + kv_head.to(tl.int64) * stride_vh
    at = wide * stride_qb + head.to(tl.int64) * stride_qh + query.to(tl.int64) * stride_qn
    q_tile = load_rows(q, at, rows, dim, stride_qd, DIM, True, EVEN)

    scale_row = ((wide % scale_batches) * scale_heads + head % scale_heads) * queries + query
    scale_plane = scale_batches.to(tl.int64) * scale_heads * queries
    bound = (wide % scale_batches) * queries + query
    begin, end = tl.load(begins + bound, mask=rows, other=0), tl.load(ends + bound, mask=rows, other=0)
    own_key = begin
    if DISTANCE >= 0:
        own_key = tl.load(own_keys + bound, mask=rows, other=0)
    before = tl.load(scales + scale_row, mask=rows, other=0.0)
    after = before
    if CAPPED:
        after = tl.load(scales + scale_plane + scale_row, mask=rows, other=0.0)
    on_bias = before
    if BIAS:
        on_bias = tl.load(scales + 2 * scale_plane + scale_row, mask=rows, other=0.0)
    bias += wide * stride_bb + head.to(tl.int64) * stride_bh + query.to(tl.int64) * stride_bq
    admitted += wide * stride_mb + head.to(tl.int64) * stride_mh + query.to(tl.int64) * stride_mq

    m = tl.full([ROWS], float("-inf"), tl.float32)
    s0 = tl.zeros([ROWS], tl.float32)
    s1, s1p, s2, s3 = s0, s0, s0, s0
    support = tl.zeros([ROWS], tl.int32)
    acc = tl.zeros([ROWS, COLUMNS], tl.float32)
    wrong = tl.zeros([KEYS], tl.int32)
    MOMENTS: tl.constexpr = 2 if VARIANCE >= 0 else (1 if ENTROPY >= 0 else 0)

    first, full_first, full_last, last = tile_range(begin, end, rows, KEYS)
    if ADMITTED or BIAS:
        full_first, full_last = last, last
    if SPLIT:
        # Each share has as many tiles as any, the last ones fewer.
        share = tl.cdiv(last - first, splits)
        first = first + tl.program_id(2) * share
        last = tl.minimum(last, first + share)
        last = tl.maximum(first, last)
        full_first = tl.minimum(tl.maximum(full_first, first), last)
        full_last = tl.maximum(tl.minimum(full_last, last), full_first)
    stop = tl.minimum(last * KEYS, tl.max(tl.where(rows, end, 0), 0))
    if not (ADMITTED or BIAS):
        for tile in tl.range(full_first, full_last, num_stages=STAGES):
            m, s0, s1, s1p, s2, s3, support, acc, wrong = visit_keys(
                tile * KEYS, m, s0, s1, s1p, s2, s3, support, acc, wrong, q_tile, before, after, on_bias, begin, end,
                own_key, rows, stop, k, v, table, page_size, stride_kb, stride_kn, stride_kd, stride_vb, stride_vn, stride_vd,
                dim, value_dim, cap, admitted, bias, stride_mk, stride_bk, False, PAGED, CAPPED, ADMITTED, BIAS,
                MOMENTS, COLLISION >= 0, DISTANCE >= 0, KEYS, DIM, COLUMNS, EVEN, EVEN_COLUMNS, PRECISION,
            )  # fmt: skip
    before_full = full_first - first
    for other in tl.range(0, before_full + last - full_last, num_stages=STAGES):
        tile = tl.where(other < before_full, first + other, full_last + other - before_full)
        m, s0, s1, s1p, s2, s3, support, acc, wrong = visit_keys(
            tile * KEYS, m, s0, s1, s1p, s2, s3, support, acc, wrong, q_tile, before, after, on_bias, begin, end, own_key,
            rows, stop, k, v, table, page_size, stride_kb, stride_kn, stride_kd, stride_vb, stride_vn, stride_vd,
            dim, value_dim, cap, admitted, bias, stride_mk, stride_bk, True, PAGED, CAPPED, ADMITTED, BIAS,
            MOMENTS, COLLISION >= 0, DISTANCE >= 0, KEYS, DIM, COLUMNS, EVEN, EVEN_COLUMNS, PRECISION,
        )  # fmt: skip
    if tl.max(wrong, 0) > 0:
        for other in range(0, before_full + last - full_last):
            tile = tl.where(other < before_full, first + other, full_last + other - before_full)
            acc = visit_wrong_values(
                tile * KEYS, acc, on_bias, begin, end, rows, stop, v, table, page_size, stride_vb, stride_vn, stride_vd,
                value_dim, admitted, bias, stride_mk, stride_bk, PAGED, ADMITTED, BIAS, KEYS, COLUMNS, EVEN_COLUMNS,
            )  # fmt: skip

    row = (wide * heads + head) * queries + query
    plane = tl.num_programs(1).to(tl.int64) // strips * heads * queries
    if not (ADMITTED or BIAS):
        support = tl.maximum(tl.minimum(end, last * KEYS) - tl.maximum(begin, first * KEYS), 0)
    if SPLIT:
        # Merged by decode.merge_kernel: states [share, 7, rows], sums [share, rows, COLUMNS].
        to = states + tl.program_id(2).to(tl.int64) * 7 * plane + row
        tl.store(to, m, mask=rows)
        tl.store(to + plane, s0, mask=rows)
        tl.store(to + 2 * plane, s1, mask=rows)
        tl.store(to + 3 * plane, s1p, mask=rows)
        tl.store(to + 4 * plane, s2, mask=rows)
        tl.store(to + 5 * plane, s3, mask=rows)
        tl.store(to + 6 * plane, support.to(tl.int32).to(tl.float32, bitcast=True), mask=rows)
        column = tl.arange(0, COLUMNS)
        place = sums + (tl.program_id(2) * plane + row)[:, None] * COLUMNS + column[None, :]
        tl.store(place, acc, mask=rows[:, None])
    else:
        sink = s0
        if SINK:
            sink = tl.load(sinks + head, mask=rows, other=0.0)
        place = wide * stride_ob + head.to(tl.int64) * stride_oh + query.to(tl.int64) * stride_on
        write_rows(
            m, s0, s1, s1p, s2, s3, acc, support > 0, support, sink, output, statistics, supports, plane, row, rows,
            place, value_dim, stride_od, LSE, ENTROPY, COLLISION, VARIANCE, MAX_LOGIT, DISTANCE, SUPPORT, SINK, COLUMNS,
            EVEN_COLUMNS,
        )  # fmt: skip
