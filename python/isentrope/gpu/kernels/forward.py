"""Forward pass: a query block against all keys that it sees, or against one share of them."""

from __future__ import annotations

import triton
import triton.language as tl

from isentrope.gpu.kernels.block import (
    Resolved, Strides, cache_of_block, keys_of, load_block, load_k, load_v, nonfinite_numbers, offsets, place_of_rows, span_of_block,
)
from isentrope.gpu.kernels.dropout import dropout_of, kept_weights
from isentrope.gpu.kernels.results import Results, write_block
from isentrope.gpu.kernels.shares import mark_share, store_share
from isentrope.gpu.kernels.softmax import FUSED_RANGE, LEAST, apply_masks, logits_of
from isentrope.gpu.kernels.span import Span, all_masked, sees_keys, visit
from isentrope.gpu.kernels.sums import (
    RowState, add_moments, empty_state, farther, from_own, like_sums, of_rows, raised, raised_from_finite, rebase,
)
from isentrope.gpu.kernels.tile import (
    F16_LIFT, Matrix, cast, dot, finite_part, full, nonfinite_flag, store_inf, zeros,
)


@triton.jit
def masked_logits(scores, hides, support, block, key, inside, cap, SHAPE: tl.constexpr, MASKED: tl.constexpr):
    """Returns the logits of a tile that may hide keys or has a soft-cap, and the rows' visible keys if SHAPE.MASKED."""
    logits, _ = logits_of(scores, block.scales, cap, SHAPE.CAPPED, False)
    if SHAPE.ONE_LOOP:
        # A selection between product and difference, which are else contracted: t of the largest key must be 0.
        logits = tl.where(inside[None, :], logits, float("-inf"))
        if hides:
            logits = apply_masks(logits, block.view, block.scales.on_bias, key, inside, SHAPE, False)[0]
    elif MASKED:
        logits, seen = apply_masks(logits, block.view, block.scales.on_bias, key, inside, SHAPE, False)
        if SHAPE.MASKED:
            support += tl.sum(seen.to(tl.int32), 1)
    return logits, support


@triton.jit
def online_softmax(
    scores, hides, largest, support, block, key, inside, cap,
    SHAPE: tl.constexpr, WANTED: tl.constexpr, MASKED: tl.constexpr, CHECKED: tl.constexpr,
):  # fmt: skip
    """Returns t and the weights of a tile; the rows' new largest logit; the factor and the shift of their earlier sums;
    and their visible keys if SHAPE.MASKED. largest: the largest logit so far."""
    lifted: tl.constexpr = block.q.dtype == tl.float16
    # Part of the origin in log2, unless a moment needs t to its last digit.
    early: tl.constexpr = F16_LIFT if lifted and WANTED.MOMENTS == 0 else 0.0
    late: tl.constexpr = F16_LIFT if lifted and WANTED.MOMENTS > 0 else 0.0
    if MASKED or SHAPE.CAPPED:
        logits, support = masked_logits(scores, hides, support, block, key, inside, cap, SHAPE, MASKED)
        m, origin, rescale, shift = raised(largest, tl.max(logits, 1))
        t = logits - (origin - early)[:, None]
    else:
        # The largest score gives the largest logit, so each t is one multiply-add: exact, although the origin was
        # rounded.
        m, origin, rescale, shift = raised_from_finite(largest, tl.max(scores, 1) * block.scales.before)
        t = scores * block.scales.before[:, None] - (origin - early)[:, None]
    if late > 0:
        w = tl.exp2(t + late)
    else:
        w = tl.exp2(t)
    if MASKED or SHAPE.CAPPED or not CHECKED:
        t = tl.maximum(t, LEAST)
    return t, w, m, rescale, shift, support


@triton.jit
def process_key_tile(
    tile, found, block, cache, cap, span, WANTED: tl.constexpr, PAGE: tl.constexpr, REPAIR: tl.constexpr, CHECKED: tl.constexpr,
    SHAPE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Adds one tile of keys to a query block's sums.

    MASKED: the tile may hide keys from some row, and with SHAPE.ONE_LOOP does so unless the span counts it among those that hide
    nothing. CHECKED: programs with non-finite sums are recomputed with REPAIR."""
    state, support, acc = found
    start, key, inside = keys_of(tile, cache, SHAPE)
    hides = (tile < span.full_first) | (tile >= span.full_last)
    k_tile = load_k(start, inside, cache, SHAPE, MASKED, PAGE)
    scores = dot(block.q, tl.trans(k_tile), zeros(SHAPE.ROWS, SHAPE.KEYS), SHAPE)
    t, w, m, rescale, shift, support = online_softmax(
        scores, hides, state.m, support, block, key, inside, cap, SHAPE, WANTED, MASKED, CHECKED
    )  # fmt: skip
    FROM_LAST: tl.constexpr = SHAPE.OWN_LAST and not MASKED
    if FROM_LAST:
        state = farther(state, SHAPE.KEYS)
    state = rebase(state, m, like_sums(rescale, SHAPE), like_sums(shift, SHAPE), WANTED)
    state = add_moments(state, t, w, block.own_key, key, start, SHAPE, WANTED, FROM_LAST)
    v_tile = load_v(start, inside, cache, SHAPE, MASKED, PAGE)
    if SHAPE.DROPOUT:
        kept = kept_weights(
            block.dropout, block.head, block.query, start, SHAPE.ROWS, SHAPE.KEYS, SHAPE.FOURS, False
        )  # fmt: skip
        w = tl.where(kept, w, 0.0)
    if MASKED and REPAIR:
        v_tile = finite_part(v_tile)
    acc = dot(cast(w, v_tile.dtype), v_tile, acc * rescale[:, None], SHAPE)
    return state, support, acc


@triton.jit
def without_imprecise(state, acc, span, SHAPE: tl.constexpr):
    """Keeps the sums of tiles that hide nothing if every row's largest logit is within FUSED_RANGE. Otherwise starts
    anew with a span in which all tiles count as masked."""
    fused = tl.max((tl.abs(state.m) < FUSED_RANGE).to(tl.int32) ^ 1, 0) == 0
    new = empty_state(float("-inf"), SHAPE)
    state = RowState(
        tl.where(fused, state.m, new.m), tl.where(fused, state.s0, 0.0), tl.where(fused, state.s1, 0.0),
        tl.where(fused, state.s1p, 0.0), tl.where(fused, state.s2, 0.0), tl.where(fused, state.s3, 0.0),
    )  # fmt: skip
    full_first, full_last = tl.where(fused, span.full_first, span.last), tl.where(fused, span.full_last, span.last)
    return state, tl.where(fused, acc, 0.0), Span(span.first, full_first, full_last, span.last)


@triton.jit
def visit_all_keys(
    span, block, cache, cap,
    SHAPE: tl.constexpr, WANTED: tl.constexpr, PAGE: tl.constexpr, REPAIR: tl.constexpr, CHECKED: tl.constexpr,
):  # fmt: skip
    """Returns a query block's sums over the keys of a span: of weights, of visible keys if SHAPE.MASKED, and of
    values. Then the span whose masked tiles were visited as such."""
    # The page table is loaded before the keys, which takes every other stage.
    STAGES: tl.constexpr = SHAPE.STAGES if PAGE == 0 else 2 * SHAPE.STAGES - 1
    support, acc = full(SHAPE.ROWS, 0, tl.int32), zeros(SHAPE.ROWS, SHAPE.COLUMNS)
    visited = span
    if SHAPE.MASKED or SHAPE.ONE_LOOP:
        state, visited = empty_state(float("-inf"), SHAPE), all_masked(span)
    else:
        found = (empty_state(-FUSED_RANGE, SHAPE), support, acc)
        state, support, acc = visit(
            span, sees_keys, (block,), process_key_tile, found, (cache, cap, span, WANTED, PAGE, REPAIR, CHECKED),
            SHAPE, STAGES, False,
        )  # fmt: skip
        if SHAPE.OWN_LAST:
            state = from_own(state, block.own_key, span.full_last * SHAPE.KEYS)
        state, acc, span = without_imprecise(state, acc, span, SHAPE)
        visited = span
    found = (state, support, acc)
    state, support, acc = visit(
        visited, sees_keys, (block,), process_key_tile, found, (cache, cap, span, WANTED, PAGE, REPAIR, CHECKED),
        SHAPE, STAGES, True,
    )  # fmt: skip
    return of_rows(state), support, acc, span


@triton.jit
def are_no_numbers(state, acc, WANTED: tl.constexpr):
    nothing = nonfinite_flag(acc)
    if WANTED.MOMENTS >= 1:
        nothing += tl.sum(state.s1 * 0.0, 0)
    if WANTED.MOMENTS >= 2:
        nothing += tl.sum(state.s1p * 0.0, 0)
    return nothing != nothing


@triton.jit(do_not_specialize=["heads", "kv_heads", "queries", "keys", "stride_table", "scale_batches", "scale_heads",
                                "splits", "least", "query_offset", "key_offset"])  # fmt: skip
def forward_kernel(
    q, k, v, output, statistics, supports, begins, ends, own_keys, scales, sinks, attn_mask, bias, table, states, sums, wrong,
    k_tiles, v_tiles, starts,
    stride_qb, stride_qh, stride_qn, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_on, stride_od,
    stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
    heads, kv_heads, queries, keys, dim, value_dim, stride_table, scale_batches, scale_heads, cap, splits,
    seed, least, kept_factor, query_offset, key_offset,
    SHAPE: tl.constexpr, WANTED: tl.constexpr, SINK: tl.constexpr, PAGE: tl.constexpr, PACKED: tl.constexpr,
    SPLIT: tl.constexpr, REPAIR: tl.constexpr,
):  # fmt: skip
    """Program (batch x head x query block, -, share): computes output and statistics, or with SPLIT stores the sums of
    its share of the keys, for merge_kernel. `wrong` int32 [share, batch x head x query block]: set if some sum is
    non-finite, because a row sees a non-finite value, or because 0 times a hidden one or times a logit of -inf is NaN.
    With REPAIR only those programs run again, masking non-finite values; others return at once. None: not recorded.
    k_tiles, v_tiles: tensor descriptors of k and v, or None. starts: beginnings of packed queries, or None."""
    program = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
    if REPAIR:
        if tl.load(wrong + program) == 0:
            return
    to_q, to_output = Strides(stride_qb, stride_qh, stride_qn, stride_qd), Strides(stride_ob, stride_oh, stride_on, stride_od)
    to_k, to_v = Strides(stride_kb, stride_kh, stride_kn, stride_kd), Strides(stride_vb, stride_vh, stride_vn, stride_vd)
    place = place_of_rows(0, heads, kv_heads, queries, starts, SHAPE.ROWS, SHAPE.ROWS, PACKED)
    resolved = Resolved(begins, ends, own_keys, scales, scale_batches, scale_heads, queries)
    dropout = dropout_of(seed, least, kept_factor, place.batch, query_offset, key_offset, SHAPE)
    block = load_block(
        q, to_q, dim, attn_mask, Strides(stride_mb, stride_mh, stride_mq, stride_mk), bias,
        Strides(stride_bb, stride_bh, stride_bq, stride_bk), place, resolved, dropout, SHAPE, WANTED,
    )  # fmt: skip
    rows, view, span = place.rows, block.view, span_of_block(block, splits, SHAPE, SPLIT)
    if PAGE > 0:
        table += place.sequence * stride_table
    cache = cache_of_block(
        k, to_k, dim, k_tiles, v, to_v, value_dim, v_tiles, table, place.batch, place.kv_head, view, span.last, SHAPE, PAGE
    )  # fmt: skip
    CHECKED: tl.constexpr = wrong is not None and not REPAIR
    state, support, acc, span = visit_all_keys(span, block, cache, cap, SHAPE, WANTED, PAGE, REPAIR, CHECKED)
    if CHECKED:
        tl.store(wrong + program, are_no_numbers(state, acc, WANTED))
    if not SHAPE.MASKED:
        support = tl.maximum(tl.minimum(view.end, span.last * SHAPE.KEYS) - tl.maximum(view.begin, span.first * SHAPE.KEYS), 0)
    output_rows = Matrix(output, stride_on, stride_od, value_dim)
    if SPLIT:
        store_share(states, sums, state, support, acc, rows, WANTED, SHAPE.ROWS, SHAPE.COLUMNS)
    else:
        results = Results(output_rows, to_output, statistics, supports, sinks, kept_factor)
        write_block(state, acc, support, place, results, WANTED, SINK, SHAPE.COLUMNS, SHAPE.EVEN_COLUMNS)
    if REPAIR:
        # After the results, so that neither loop takes registers of the other.
        if SHAPE.ONE_LOOP:
            span = all_masked(span)
        acc = nonfinite_numbers(span, block, cache, cache, True, False, PAGE, SHAPE)
        if SPLIT:
            mark_share(sums, rows, acc, SHAPE.ROWS, SHAPE.COLUMNS)
        else:
            store_inf(output_rows, offsets(place, to_output), rows, acc, SHAPE.COLUMNS, SHAPE.EVEN_COLUMNS)
