"""The backward pass: what each row's gradient starts from, then queries against their keys, then keys against theirs.

Weights are recomputed from logits and lse. Each result is summed by the one program that owns it, so there are no
atomics, and its bits do not depend on scheduling. With u = ln p_j + H, and w the weight beside the sink,

    dz_j = p_j [ w do.v_j + base + linear u + quadratic u^2 + collision p_j + d_D |i - j| ]

    base = d_lse - w do.output - 2 d_C C - d_V V - d_D D     linear = 2 d_V - d_H     quadratic = d_V     collision = 2 d_C
"""

from __future__ import annotations

import triton
import triton.language as tl

from isentrope.gpu.tile import (
    F16_LIFT,
    LEAST,
    LN2,
    LOG2E,
    apply_masks,
    dot,
    finite_part,
    load_rows,
    logits_of,
    narrow,
    reach,
    seen_keys,
    tile_range,
)


@triton.jit
def statistic(statistics, place, plane, row, rows, GIVEN: tl.constexpr):
    """A slice of the statistics or of their gradients; 0 where there is none."""
    if GIVEN:
        return tl.load(statistics + place * plane + row, mask=rows, other=0.0)
    else:
        return tl.zeros(row.shape, tl.float32)


@triton.jit(do_not_specialize=["heads", "queries", "value_dim", "own_batches"])
def gradient_rows_kernel(
    output, d_output, statistics, d_statistics, sinks, own_keys, terms, d_sinks,
    stride_ob, stride_oh, stride_on, stride_od, stride_gb, stride_gh, stride_gn, stride_gd,
    heads, queries, value_dim, own_batches,
    LSE: tl.constexpr, ENTROPY: tl.constexpr, COLLISION: tl.constexpr, VARIANCE: tl.constexpr, DISTANCE: tl.constexpr,
    UPSTREAM: tl.constexpr, SINK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """terms f32 [9, rows]: lse in bits, base, w, linear, quadratic, collision, entropy, d_distance, the key at the
    row's own position. d_sinks f32 [rows]."""
    index = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    rows = index < queries
    batch, head = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    row = tl.program_id(1).to(tl.int64) * queries + index
    plane = tl.num_programs(1).to(tl.int64) * queries
    at = batch * stride_ob + head * stride_oh + index.to(tl.int64) * stride_on
    out = load_rows(output, at, rows, value_dim, stride_od, COLUMNS, True, False).to(tl.float32)
    at = batch * stride_gb + head * stride_gh + index.to(tl.int64) * stride_gn
    upstream = load_rows(d_output, at, rows, value_dim, stride_gd, COLUMNS, True, False).to(tl.float32)
    mean = tl.sum(out * upstream, 1)

    lse = tl.load(statistics + LSE * plane + row, mask=rows, other=0.0)
    entropy = statistic(statistics, ENTROPY, plane, row, rows, ENTROPY >= 0)
    d_lse = statistic(d_statistics, LSE, plane, row, rows, UPSTREAM)
    d_entropy = statistic(d_statistics, ENTROPY, plane, row, rows, UPSTREAM and ENTROPY >= 0)
    d_collision = statistic(d_statistics, COLLISION, plane, row, rows, UPSTREAM and COLLISION >= 0)
    d_variance = statistic(d_statistics, VARIANCE, plane, row, rows, UPSTREAM and VARIANCE >= 0)
    d_distance = statistic(d_statistics, DISTANCE, plane, row, rows, UPSTREAM and DISTANCE >= 0)
    share = tl.full([ROWS], 1.0, tl.float32)
    if SINK:
        # Logits that are all -inf leave the sink no key to share with.
        sink = tl.load(sinks + head)
        share = 1.0 / (1.0 + tl.exp(sink - lse))
        d_sink = tl.where(lse == float("-inf"), 0.0, -mean / (1.0 + tl.exp(lse - sink)))
        tl.store(d_sinks + row, d_sink, mask=rows)
    base = d_lse - share * mean
    if UPSTREAM and COLLISION >= 0:
        base -= 2.0 * d_collision * tl.load(statistics + COLLISION * plane + row, mask=rows, other=0.0)
    if UPSTREAM and VARIANCE >= 0:
        base -= d_variance * tl.load(statistics + VARIANCE * plane + row, mask=rows, other=0.0)
    if UPSTREAM and DISTANCE >= 0:
        base -= d_distance * tl.load(statistics + DISTANCE * plane + row, mask=rows, other=0.0)
    own_key = tl.load(own_keys + (batch % own_batches) * queries + index, mask=rows, other=0)
    tl.store(terms + row, lse * LOG2E, mask=rows)
    tl.store(terms + plane + row, base, mask=rows)
    tl.store(terms + 2 * plane + row, share, mask=rows)
    tl.store(terms + 3 * plane + row, 2.0 * d_variance - d_entropy, mask=rows)
    tl.store(terms + 4 * plane + row, d_variance, mask=rows)
    tl.store(terms + 5 * plane + row, 2.0 * d_collision, mask=rows)
    tl.store(terms + 6 * plane + row, entropy, mask=rows)
    tl.store(terms + 7 * plane + row, d_distance, mask=rows)
    tl.store(terms + 8 * plane + row, own_key.to(tl.float32), mask=rows)


@triton.jit
def load_terms(terms, plane, row, rows, MOMENTS: tl.constexpr):
    """What gradient_rows_kernel left of these rows; 0 of rows that there are not."""
    lse = tl.load(terms + row, mask=rows, other=0.0)
    base = tl.load(terms + plane + row, mask=rows, other=0.0)
    share = tl.load(terms + 2 * plane + row, mask=rows, other=0.0)
    linear, quadratic, collision, entropy, d_distance, own_key = base, base, base, base, base, base
    if MOMENTS:
        linear = tl.load(terms + 3 * plane + row, mask=rows, other=0.0)
        quadratic = tl.load(terms + 4 * plane + row, mask=rows, other=0.0)
        collision = tl.load(terms + 5 * plane + row, mask=rows, other=0.0)
        entropy = tl.load(terms + 6 * plane + row, mask=rows, other=0.0)
        d_distance = tl.load(terms + 7 * plane + row, mask=rows, other=0.0)
        own_key = tl.load(terms + 8 * plane + row, mask=rows, other=0.0)
    return lse, base, share, linear, quadratic, collision, entropy, d_distance, own_key


@triton.jit
def load_scales(scales, plane, row, rows, CAPPED: tl.constexpr, BIAS: tl.constexpr):
    """lambda in bits, the factor after the soft-cap, and that of the bias in bits."""
    before = tl.load(scales + row, mask=rows, other=0.0)
    after, on_bias = before, before
    if CAPPED:
        after = tl.load(scales + plane + row, mask=rows, other=0.0)
    if BIAS:
        on_bias = tl.load(scales + 2 * plane + row, mask=rows, other=0.0)
    return before, after, on_bias


@triton.jit
def logit_gradients(
    logits, dp, lse, base, share, linear, quadratic, collision, entropy, d_distance, away, MOMENTS: tl.constexpr
):  # fmt: skip
    """Weights p, and dz. Where a key is hidden they may be anything."""
    # No logit is above its row's lse, but this lse was rounded.
    t = logits - lse
    t = tl.where(t > 0, 0.0, t)
    p = tl.exp2(t)
    slope = dp * share + base
    if MOMENTS:
        u = tl.where(t < LEAST, LEAST, t) * LN2 + entropy
        slope += u * (linear + u * quadratic) + p * collision + d_distance * tl.abs(away)
    return p, p * slope


@triton.jit
def lifted(x, unit, dtype: tl.constexpr):
    """x for a product in `dtype`, and the factor for what was summed before.

    Gradients leave the range of float16: there each row is measured in a power of two of its largest number so far.
    """
    if dtype == tl.float16:
        most = tl.max(tl.abs(x), 1)
        power = (most.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
        raised = tl.maximum(unit, power)
        return narrow(x * (1.0 / raised * F16_LIFT)[:, None], dtype), raised, unit / raised
    else:
        return narrow(x, dtype), unit, unit


@triton.jit
def visit_keys(
    start, dq, unit, d_lambda, wrong, q, upstream, before, after, on_bias, lse, base, share, linear, quadratic, collision,
    entropy, d_distance, own_key, begin, end, rows, last, k, v, stride_kn, stride_kd, stride_vn, stride_vd, dim, value_dim, cap,
    admitted, bias, stride_mk, stride_bk, d_bias,
    MASKED: tl.constexpr, CAPPED: tl.constexpr, ADMITTED: tl.constexpr, BIAS: tl.constexpr, D_BIAS: tl.constexpr,
    D_LAMBDA: tl.constexpr, MOMENTS: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr, COLUMNS: tl.constexpr,
    EVEN: tl.constexpr, EVEN_COLUMNS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A strip of queries takes up the gradient of one tile of keys."""
    key = start + tl.arange(0, KEYS)
    inside = key < last
    named = tl.where(inside, key, 0).to(tl.int64)
    k_tile = load_rows(k, named * stride_kn, inside, dim, stride_kd, DIM, MASKED, EVEN)
    v_tile = load_rows(v, named * stride_vn, inside, value_dim, stride_vd, COLUMNS, MASKED, EVEN_COLUMNS)
    nothing = tl.zeros([q.shape[0], KEYS], tl.float32)
    scores = dot(q, tl.trans(k_tile), nothing, PRECISION)
    dp = dot(upstream, tl.trans(v_tile), nothing, PRECISION)
    logits, slope = logits_of(scores, before[:, None], after[:, None], cap, CAPPED)
    seen = seen_keys(key[None, :], begin[:, None], end[:, None])
    if MASKED:
        logits, seen = apply_masks(
            logits, seen, rows[:, None] & inside[None, :], key[None, :], admitted[:, None], bias[:, None],
            on_bias[:, None], stride_mk, stride_bk, ADMITTED, BIAS,
        )  # fmt: skip
    _, dz = logit_gradients(
        logits, dp, lse[:, None], base[:, None], share[:, None], linear[:, None], quadratic[:, None],
        collision[:, None], entropy[:, None], d_distance[:, None], own_key[:, None] - key[None, :].to(tl.float32), MOMENTS,
    )  # fmt: skip
    if D_BIAS:
        at = d_bias[:, None] + key[None, :]
        tl.store(at, on_bias[:, None] * LN2 * dz, mask=seen & rows[:, None])
    if CAPPED:
        dz = dz * slope
    if MASKED:
        dz = tl.where(seen, dz, 0.0)
    if D_LAMBDA:
        product = dz * scores
        if MASKED:
            product = tl.where(seen, product, 0.0)
        d_lambda += tl.sum(product, 1)
    ds, unit, keep = lifted(dz, unit, k_tile.dtype)
    if k_tile.dtype == tl.float16:
        dq = dq * keep[:, None]
    k_tile, wrong = finite_part(k_tile, wrong, MASKED)
    return dot(ds, k_tile, dq, PRECISION), unit, d_lambda, wrong


@triton.jit
def visit_wrong_keys(
    start, dq, on_bias, begin, end, rows, last, k, stride_kn, stride_kd, dim, admitted, bias, stride_mk, stride_bk,
    ADMITTED: tl.constexpr, BIAS: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """The keys of a tile that are no numbers reach the gradients of the queries that admit them."""
    key = start + tl.arange(0, KEYS)
    inside = key < last
    named = tl.where(inside, key, 0).to(tl.int64)
    k_tile = load_rows(k, named * stride_kn, inside, dim, stride_kd, DIM, True, EVEN)
    _, seen = apply_masks(
        tl.zeros([dq.shape[0], KEYS], tl.float32), seen_keys(key[None, :], begin[:, None], end[:, None]),
        rows[:, None] & inside[None, :], key[None, :], admitted[:, None], bias[:, None], on_bias[:, None], stride_mk,
        stride_bk, ADMITTED, BIAS,
    )  # fmt: skip
    return reach(seen, k_tile, dq)


@triton.jit(do_not_specialize=["heads", "kv_heads", "queries", "keys", "dim", "value_dim", "scale_batches",
                               "scale_heads"])  # fmt: skip
def query_gradient_kernel(
    q, k, v, d_output, terms, dq, d_lambda, d_bias, begins, ends, scales, admitted, bias,
    stride_qb, stride_qh, stride_qn, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_gb, stride_gh, stride_gn, stride_gd,
    stride_rb, stride_rh, stride_rn, stride_rd, stride_mb, stride_mh, stride_mq, stride_mk,
    stride_bb, stride_bh, stride_bq, stride_bk,
    heads, kv_heads, queries, keys, dim, value_dim, scale_batches, scale_heads, cap,
    CAPPED: tl.constexpr, ADMITTED: tl.constexpr, BIAS: tl.constexpr, D_BIAS: tl.constexpr, D_LAMBDA: tl.constexpr,
    MOMENTS: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr, COLUMNS: tl.constexpr,
    EVEN: tl.constexpr, EVEN_COLUMNS: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Program (strip, batch x head): dq, d_lambda f32 [rows], and of admitted keys d_bias f32 [rows, keys]."""
    query = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    rows = query < queries
    batch, head = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    kv_head = head // (heads // kv_heads)
    wide = query.to(tl.int64)
    at = batch * stride_qb + head * stride_qh + wide * stride_qn
    q_tile = load_rows(q, at, rows, dim, stride_qd, DIM, True, EVEN)
    at = batch * stride_gb + head * stride_gh + wide * stride_gn
    upstream = load_rows(d_output, at, rows, value_dim, stride_gd, COLUMNS, True, EVEN_COLUMNS)
    k += batch * stride_kb + kv_head * stride_kh
    v += batch * stride_vb + kv_head * stride_vh
    admitted += batch * stride_mb + head * stride_mh + wide * stride_mq
    bias += batch * stride_bb + head * stride_bh + wide * stride_bq
    row = tl.program_id(1).to(tl.int64) * queries + query
    plane = tl.num_programs(1).to(tl.int64) * queries
    lse, base, share, linear, quadratic, collision, entropy, d_distance, own_key = load_terms(terms, plane, row, rows, MOMENTS)
    scale_row = ((batch % scale_batches) * scale_heads + head % scale_heads) * queries + query
    scale_plane = scale_batches.to(tl.int64) * scale_heads * queries
    before, after, on_bias = load_scales(scales, scale_plane, scale_row, rows, CAPPED, BIAS)
    bound = (batch % scale_batches) * queries + query
    begin, end = tl.load(begins + bound, mask=rows, other=0), tl.load(ends + bound, mask=rows, other=0)

    acc = tl.zeros([ROWS, DIM], tl.float32)
    unit = tl.full([ROWS], 1e-30, tl.float32)
    acc_lambda = tl.zeros([ROWS], tl.float32)
    wrong = tl.zeros([KEYS], tl.int32)
    first, full_first, full_last, last = tile_range(begin, end, rows, KEYS)
    stop = tl.max(tl.where(rows, end, 0), 0)
    d_bias += row * keys
    if ADMITTED or BIAS:
        full_first, full_last = last, last
    else:
        for tile in tl.range(full_first, full_last, num_stages=STAGES):
            acc, unit, acc_lambda, wrong = visit_keys(
                tile * KEYS, acc, unit, acc_lambda, wrong, q_tile, upstream, before, after, on_bias, lse, base, share,
                linear, quadratic, collision, entropy, d_distance, own_key, begin, end, rows, stop, k, v, stride_kn, stride_kd, stride_vn, stride_vd,
                dim, value_dim, cap, admitted, bias, stride_mk, stride_bk, d_bias, False, CAPPED, ADMITTED, BIAS,
                D_BIAS, D_LAMBDA, MOMENTS, KEYS, DIM, COLUMNS, EVEN, EVEN_COLUMNS, PRECISION,
            )  # fmt: skip
    before_full = full_first - first
    for other in tl.range(0, before_full + last - full_last, num_stages=STAGES):
        tile = tl.where(other < before_full, first + other, full_last + other - before_full)
        acc, unit, acc_lambda, wrong = visit_keys(
            tile * KEYS, acc, unit, acc_lambda, wrong, q_tile, upstream, before, after, on_bias, lse, base, share, linear,
            quadratic, collision, entropy, d_distance, own_key, begin, end, rows, stop, k, v, stride_kn, stride_kd, stride_vn, stride_vd,
            dim, value_dim, cap, admitted, bias, stride_mk, stride_bk, d_bias, True, CAPPED, ADMITTED, BIAS,
            D_BIAS, D_LAMBDA, MOMENTS, KEYS, DIM, COLUMNS, EVEN, EVEN_COLUMNS, PRECISION,
        )  # fmt: skip
    if tl.max(wrong, 0) > 0:
        for other in range(0, before_full + last - full_last):
            tile = tl.where(other < before_full, first + other, full_last + other - before_full)
            acc = visit_wrong_keys(
                tile * KEYS, acc, on_bias, begin, end, rows, stop, k, stride_kn, stride_kd, dim, admitted, bias,
                stride_mk, stride_bk, ADMITTED, BIAS, KEYS, DIM, EVEN,
            )  # fmt: skip
    # Rows without keys went along where the strip's others see everything.
    some = end > begin
    if dq.dtype.element_ty == tl.float16:
        acc = acc * (unit * (1.0 / F16_LIFT))[:, None]
    acc = tl.where(some[:, None], acc * (before * LN2)[:, None], 0.0)
    column = tl.arange(0, DIM)
    at = batch * stride_rb + head * stride_rh + wide * stride_rn
    at = dq + at[:, None] + column[None, :].to(tl.int64) * stride_rd
    tl.store(at, narrow(acc, dq.dtype.element_ty), mask=rows[:, None] & (column < dim)[None, :])
    if D_LAMBDA:
        tl.store(d_lambda + row, tl.where(some, acc_lambda, 0.0), mask=rows)


@triton.jit
def visit_queries(
    tile, head, batch, dk, dv, unit, wrong, k_tile, v_tile, key, keys, q, d_output, terms, plane, scales, scale_plane, begins,
    ends, admitted, bias, stride_qh, stride_qn, stride_qd, stride_gh, stride_gn, stride_gd, stride_mh, stride_mq,
    stride_mk, stride_bh, stride_bq, stride_bk, heads, queries, dim, value_dim, scale_batches, scale_heads, cap,
    MASKED: tl.constexpr, CAPPED: tl.constexpr, ADMITTED: tl.constexpr, BIAS: tl.constexpr, MOMENTS: tl.constexpr,
    ROWS: tl.constexpr, DIM: tl.constexpr, COLUMNS: tl.constexpr, EVEN: tl.constexpr, EVEN_COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """A tile of keys takes up the gradient of one strip of queries; tiles lie transposed, [keys, queries]."""
    query = tile * ROWS + tl.arange(0, ROWS)
    rows = query < queries
    wide = query.to(tl.int64)
    q_tile = load_rows(q, head * stride_qh + wide * stride_qn, rows, dim, stride_qd, DIM, True, EVEN)
    upstream = load_rows(
        d_output, head * stride_gh + wide * stride_gn, rows, value_dim, stride_gd, COLUMNS, True, EVEN_COLUMNS
    )
    row = (batch * heads + head) * queries + query
    lse, base, share, linear, quadratic, collision, entropy, d_distance, own_key = load_terms(terms, plane, row, rows, MOMENTS)
    scale_row = ((batch % scale_batches) * scale_heads + head % scale_heads) * queries + query
    before, after, on_bias = load_scales(scales, scale_plane, scale_row, rows, CAPPED, BIAS)
    nothing = tl.zeros([key.shape[0], ROWS], tl.float32)
    scores = dot(k_tile, tl.trans(q_tile), nothing, PRECISION)
    dp = dot(v_tile, tl.trans(upstream), nothing, PRECISION)
    logits, slope = logits_of(scores, before[None, :], after[None, :], cap, CAPPED)
    seen = nothing == 0
    if MASKED:
        bound = (batch % scale_batches) * queries + query
        begin, end = tl.load(begins + bound, mask=rows, other=0), tl.load(ends + bound, mask=rows, other=0)
        seen = seen_keys(key[:, None], begin[None, :], end[None, :])
        logits, seen = apply_masks(
            logits, seen, rows[None, :] & (key < keys)[:, None], key[:, None],
            (admitted + head * stride_mh + wide * stride_mq)[None, :], (bias + head * stride_bh + wide * stride_bq)[None, :],
            on_bias[None, :], stride_mk, stride_bk, ADMITTED, BIAS,
        )  # fmt: skip
    p, dz = logit_gradients(
        logits, dp, lse[None, :], base[None, :], share[None, :], linear[None, :], quadratic[None, :],
        collision[None, :], entropy[None, :], d_distance[None, :], own_key[None, :] - key[:, None].to(tl.float32), MOMENTS,
    )  # fmt: skip
    p = p * share[None, :]
    if CAPPED:
        dz = dz * slope
    dz = dz * (before * LN2)[None, :]
    if MASKED:
        # By selection: a row's own numbers may be NaN, and keys it does not see must not hear of it.
        p = tl.where(seen, p, 0.0)
        dz = tl.where(seen, dz, 0.0)
    if upstream.dtype == tl.float16:
        p = p * F16_LIFT
    upstream, wrong = finite_part(upstream, wrong, MASKED)
    dv = dot(narrow(p, upstream.dtype), upstream, dv, PRECISION)
    ds, unit, keep = lifted(dz, unit, q_tile.dtype)
    if q_tile.dtype == tl.float16:
        dk = dk * keep[:, None]
    q_tile, wrong = finite_part(q_tile, wrong, MASKED)
    return dot(ds, q_tile, dk, PRECISION), dv, unit, wrong


@triton.jit
def visit_wrong_queries(
    tile, head, batch, dk, dv, key, keys, q, d_output, begins, ends, admitted, bias, stride_qh, stride_qn, stride_qd,
    stride_gh, stride_gn, stride_gd, stride_mh, stride_mq, stride_mk, stride_bh, stride_bq, stride_bk, queries, dim,
    value_dim, scale_batches, ADMITTED: tl.constexpr, BIAS: tl.constexpr,
    ROWS: tl.constexpr, DIM: tl.constexpr, COLUMNS: tl.constexpr, EVEN: tl.constexpr, EVEN_COLUMNS: tl.constexpr,
):  # fmt: skip
    """The queries and upstream gradients of a strip that are no numbers reach the keys that their rows admit."""
    query = tile * ROWS + tl.arange(0, ROWS)
    rows = query < queries
    wide = query.to(tl.int64)
    q_tile = load_rows(q, head * stride_qh + wide * stride_qn, rows, dim, stride_qd, DIM, True, EVEN)
    upstream = load_rows(
        d_output, head * stride_gh + wide * stride_gn, rows, value_dim, stride_gd, COLUMNS, True, EVEN_COLUMNS
    )
    bound = (batch % scale_batches) * queries + query
    begin, end = tl.load(begins + bound, mask=rows, other=0), tl.load(ends + bound, mask=rows, other=0)
    nothing = tl.zeros([dk.shape[0], ROWS], tl.float32)
    _, seen = apply_masks(
        nothing, seen_keys(key[:, None], begin[None, :], end[None, :]), rows[None, :] & (key < keys)[:, None],
        key[:, None], (admitted + head * stride_mh + wide * stride_mq)[None, :],
        (bias + head * stride_bh + wide * stride_bq)[None, :], nothing, stride_mk, stride_bk, ADMITTED, BIAS,
    )  # fmt: skip
    return reach(seen, q_tile, dk), reach(seen, upstream, dv)


@triton.jit
def strips_of(tiles, count, first_key, last_key):
    """Strips of queries some of whose rows see some of these keys: first, one past the last, and between them those all
    of whose rows see all of them. `tiles` is what rows_kernel left of each strip."""
    far = 2147483647
    first, last, full_first, full_last, full = count, 0, count, 0, 0
    for start in range(0, count, 64):
        strip = start + tl.arange(0, 64)
        there = strip < count
        least_begin = tl.load(tiles + strip * 4, mask=there, other=far)
        largest_end = tl.load(tiles + strip * 4 + 1, mask=there, other=0)
        largest_begin = tl.load(tiles + strip * 4 + 2, mask=there, other=far)
        least_end = tl.load(tiles + strip * 4 + 3, mask=there, other=0)
        some = (largest_end > first_key) & (least_begin < last_key)
        all_of_them = (largest_begin <= first_key) & (least_end >= last_key)
        first = tl.minimum(first, tl.min(tl.where(some, strip, far), 0))
        last = tl.maximum(last, tl.max(tl.where(some, strip + 1, 0), 0))
        full_first = tl.minimum(full_first, tl.min(tl.where(all_of_them, strip, far), 0))
        full_last = tl.maximum(full_last, tl.max(tl.where(all_of_them, strip + 1, 0), 0))
        full += tl.sum(all_of_them.to(tl.int32), 0)
    first = tl.minimum(first, last)
    apart = (full == 0) | (full != full_last - full_first)
    return first, tl.where(apart, last, full_first), tl.where(apart, last, full_last), last


@triton.jit(do_not_specialize=["heads", "kv_heads", "queries", "keys", "dim", "value_dim", "scale_batches",
                               "scale_heads"])  # fmt: skip
def key_gradient_kernel(
    q, k, v, d_output, terms, dk, dv, begins, ends, tiles, scales, admitted, bias,
    stride_qb, stride_qh, stride_qn, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_gb, stride_gh, stride_gn, stride_gd,
    stride_rb, stride_rh, stride_rn, stride_rd, stride_wb, stride_wh, stride_wn, stride_wd,
    stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
    heads, kv_heads, queries, keys, dim, value_dim, scale_batches, scale_heads, cap,
    CAPPED: tl.constexpr, ADMITTED: tl.constexpr, BIAS: tl.constexpr, MOMENTS: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr, COLUMNS: tl.constexpr,
    EVEN: tl.constexpr, EVEN_COLUMNS: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Program (tile of keys, batch x key head): dk and dv, summed over all query heads that read the key head."""
    first_key = tl.program_id(0) * KEYS
    key = first_key + tl.arange(0, KEYS)
    inside = key < keys
    batch, kv_head = (tl.program_id(1) // kv_heads).to(tl.int64), (tl.program_id(1) % kv_heads).to(tl.int64)
    group = heads // kv_heads
    wide = key.to(tl.int64)
    at = batch * stride_kb + kv_head * stride_kh + wide * stride_kn
    k_tile = load_rows(k, at, inside, dim, stride_kd, DIM, True, EVEN)
    at = batch * stride_vb + kv_head * stride_vh + wide * stride_vn
    v_tile = load_rows(v, at, inside, value_dim, stride_vd, COLUMNS, True, EVEN_COLUMNS)
    q += batch * stride_qb
    d_output += batch * stride_gb
    admitted += batch * stride_mb
    bias += batch * stride_bb
    plane = tl.num_programs(1).to(tl.int64) * group * queries
    scale_plane = scale_batches.to(tl.int64) * scale_heads * queries

    acc_k = tl.zeros([KEYS, DIM], tl.float32)
    acc_v = tl.zeros([KEYS, COLUMNS], tl.float32)
    unit = tl.full([KEYS], 1e-30, tl.float32)
    wrong = tl.zeros([ROWS], tl.int32)
    count = tl.cdiv(queries, ROWS)
    its_tiles = tiles + (batch % scale_batches) * count * 4
    first, full_first, full_last, last = strips_of(its_tiles, count, first_key, tl.minimum(first_key + KEYS, keys))
    if ADMITTED or BIAS:
        full_first, full_last = last, last
    else:
        full = full_last - full_first
        for step in tl.range(0, full * group, num_stages=STAGES):
            acc_k, acc_v, unit, wrong = visit_queries(
                full_first + step % full, kv_head * group + step // full, batch, acc_k, acc_v, unit, wrong, k_tile,
                v_tile, key, keys, q, d_output, terms, plane, scales, scale_plane, begins, ends, admitted, bias, stride_qh,
                stride_qn, stride_qd, stride_gh, stride_gn, stride_gd, stride_mh, stride_mq, stride_mk, stride_bh,
                stride_bq, stride_bk, heads, queries, dim, value_dim, scale_batches, scale_heads, cap, False, CAPPED,
                ADMITTED, BIAS, MOMENTS, ROWS, DIM, COLUMNS, EVEN, EVEN_COLUMNS, PRECISION,
            )  # fmt: skip
    before_full = full_first - first
    others = before_full + last - full_last
    for step in tl.range(0, others * group, num_stages=STAGES):
        other = step % others
        acc_k, acc_v, unit, wrong = visit_queries(
            tl.where(other < before_full, first + other, full_last + other - before_full),
            kv_head * group + step // others, batch, acc_k, acc_v, unit, wrong, k_tile, v_tile, key, keys, q, d_output,
            terms, plane, scales, scale_plane, begins, ends, admitted, bias, stride_qh, stride_qn, stride_qd, stride_gh,
            stride_gn, stride_gd, stride_mh, stride_mq, stride_mk, stride_bh, stride_bq, stride_bk, heads, queries, dim,
            value_dim, scale_batches, scale_heads, cap, True, CAPPED, ADMITTED, BIAS, MOMENTS, ROWS, DIM, COLUMNS, EVEN,
            EVEN_COLUMNS, PRECISION,
        )  # fmt: skip
    if tl.max(wrong, 0) > 0:
        for step in range(0, others * group):
            other = step % others
            acc_k, acc_v = visit_wrong_queries(
                tl.where(other < before_full, first + other, full_last + other - before_full),
                kv_head * group + step // others, batch, acc_k, acc_v, key, keys, q, d_output, begins, ends, admitted,
                bias, stride_qh, stride_qn, stride_qd, stride_gh, stride_gn, stride_gd, stride_mh, stride_mq, stride_mk,
                stride_bh, stride_bq, stride_bk, queries, dim, value_dim, scale_batches, ADMITTED, BIAS, ROWS, DIM,
                COLUMNS, EVEN, EVEN_COLUMNS,
            )  # fmt: skip
    if k_tile.dtype == tl.float16:
        acc_k = acc_k * (unit * (1.0 / F16_LIFT))[:, None]
        acc_v = acc_v * (1.0 / F16_LIFT)
    column = tl.arange(0, DIM)
    at = batch * stride_rb + kv_head * stride_rh + wide * stride_rn
    at = dk + at[:, None] + column[None, :].to(tl.int64) * stride_rd
    tl.store(at, narrow(acc_k, dk.dtype.element_ty), mask=inside[:, None] & (column < dim)[None, :])
    column = tl.arange(0, COLUMNS)
    at = batch * stride_wb + kv_head * stride_wh + wide * stride_wn
    at = dv + at[:, None] + column[None, :].to(tl.int64) * stride_wd
    tl.store(at, narrow(acc_v, dv.dtype.element_ty), mask=inside[:, None] & (column < value_dim)[None, :])
