"""What happens to one tile of the backward pass: scores and weights once more, and the gradients of logits.

Queries against their keys and keys against their queries share these steps.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from isentrope.gpu.kernels.dropout import Dropout, dropout_of, kept_weights
from isentrope.gpu.kernels.softmax import LEAST, LN2, Scales, View, apply_masks, distances, load_scales, logits_of
from isentrope.gpu.kernels.tile import F16_LIFT, Matrix, beside, load_rows, narrow


class Given(NamedTuple):
    """Whether rows have a sink, and of which statistics gradients arrive."""

    SINK: bool
    ENTROPY: bool
    VARIANCE: bool
    COLLISION: bool
    DISTANCE: bool
    MAX_PROBABILITY: bool


class Terms(NamedTuple):
    """What gradient_rows_kernel and largest_key_kernel leave of rows, as far as given."""

    lse: tl.tensor
    base: tl.tensor
    share: tl.tensor
    linear: tl.tensor
    quadratic: tl.tensor
    collision: tl.tensor
    entropy: tl.tensor
    d_distance: tl.tensor
    own_key: tl.tensor
    d_most: tl.tensor
    largest_key: tl.tensor


class QueryBlock(NamedTuple):
    """A tile of queries, the gradient of their outputs, what their rows know and see, and by what dropout tells them."""

    q: tl.tensor
    upstream: tl.tensor
    terms: Terms
    scales: Scales
    view: View
    dropout: Dropout
    head: tl.tensor
    query: tl.tensor


class Memory(NamedTuple):
    """The rows of one sequence in memory, and the steps from head to head, from row to row and from key to key: queries,
    gradients of outputs, what the kernels before left of rows, a boolean mask, a bias and dropout."""

    queries: tl.tensor
    q: Matrix
    q_to_head: tl.tensor
    upstream: Matrix
    upstream_to_head: tl.tensor
    terms: tl.tensor
    plane: tl.tensor
    scales: tl.tensor
    scale_plane: tl.tensor
    scale_heads: tl.tensor
    begins: tl.tensor
    ends: tl.tensor
    attn_mask: tl.tensor
    attn_mask_to_head: tl.tensor
    attn_mask_to_row: tl.tensor
    attn_mask_to_key: tl.tensor
    bias: tl.tensor
    bias_to_head: tl.tensor
    bias_to_row: tl.tensor
    bias_to_key: tl.tensor
    dropout: Dropout


@triton.jit
def memory_of(
    batch, q, d_output, terms, scales, begins, ends, attn_mask, bias,
    stride_qb, stride_qh, stride_qn, stride_qd, stride_gb, stride_gh, stride_gn, stride_gd,
    stride_mb, stride_mh, stride_mq, stride_mk, stride_bb, stride_bh, stride_bq, stride_bk,
    batches, heads, queries, dim, value_dim, scale_batches, scale_heads,
    seed, least, kept_factor, query_offset, key_offset, SHAPE: tl.constexpr,
):  # fmt: skip
    """The rows of a sequence, out of the arguments of a kernel."""
    its_scales = (batch % scale_batches) * queries
    return Memory(
        queries, Matrix(q + batch * stride_qb, stride_qn, stride_qd, dim), stride_qh,
        Matrix(d_output + batch * stride_gb, stride_gn, stride_gd, value_dim), stride_gh,
        terms + batch * heads * queries, batches.to(tl.int64) * heads * queries,
        scales + its_scales * scale_heads, scale_batches.to(tl.int64) * scale_heads * queries, scale_heads,
        begins + its_scales, ends + its_scales,
        attn_mask + batch * stride_mb, stride_mh, stride_mq, stride_mk, bias + batch * stride_bb, stride_bh, stride_bq, stride_bk,
        dropout_of(seed, least, kept_factor, batch, query_offset, key_offset, SHAPE),
    )  # fmt: skip


@triton.jit
def load_terms(terms, plane, row, rows, GIVEN: tl.constexpr):
    """0 of rows that there are not."""
    lse = tl.load(terms + row, mask=rows, other=0.0)
    base = tl.load(terms + plane + row, mask=rows, other=0.0)
    share, linear, quadratic, collision, entropy, d_distance, own_key = base, base, base, base, base, base, base
    d_most, largest_key = base, base
    if GIVEN.SINK:
        share = tl.load(terms + 2 * plane + row, mask=rows, other=0.0)
    if GIVEN.ENTROPY or GIVEN.VARIANCE:
        linear = tl.load(terms + 3 * plane + row, mask=rows, other=0.0)
        entropy = tl.load(terms + 6 * plane + row, mask=rows, other=0.0)
    if GIVEN.VARIANCE:
        quadratic = tl.load(terms + 4 * plane + row, mask=rows, other=0.0)
    if GIVEN.COLLISION:
        collision = tl.load(terms + 5 * plane + row, mask=rows, other=0.0)
    if GIVEN.DISTANCE:
        d_distance = tl.load(terms + 7 * plane + row, mask=rows, other=0.0)
        own_key = tl.load(terms + 8 * plane + row, mask=rows, other=0.0).to(tl.int32, bitcast=True)
    if GIVEN.MAX_PROBABILITY:
        d_most = tl.load(terms + 9 * plane + row, mask=rows, other=0.0)
        largest_key = tl.load(terms + 10 * plane + row, mask=rows, other=0.0).to(tl.int32, bitcast=True)
    return Terms(lse, base, share, linear, quadratic, collision, entropy, d_distance, own_key, d_most, largest_key)


@triton.jit
def load_query_block(memory, head, query, SHAPE: tl.constexpr, GIVEN: tl.constexpr, MASKED: tl.constexpr):
    """The rows of some queries of a head. Without MASKED they see every key they meet."""
    rows = query < memory.queries
    wide = query.to(tl.int64)
    at = head * memory.q_to_head + wide * memory.q.to_row
    q = load_rows(memory.q, at, rows, SHAPE.DIM, True, SHAPE.EVEN)
    at = head * memory.upstream_to_head + wide * memory.upstream.to_row
    upstream = load_rows(memory.upstream, at, rows, SHAPE.COLUMNS, True, SHAPE.EVEN_COLUMNS)
    terms = load_terms(memory.terms, memory.plane, head * memory.queries + query, rows, GIVEN)
    scale_row = (head % memory.scale_heads) * memory.queries + query
    scales = load_scales(memory.scales, memory.scale_plane, scale_row, rows, SHAPE)
    begin, end = query, query
    if MASKED:
        begin, end = tl.load(memory.begins + query, mask=rows, other=0), tl.load(memory.ends + query, mask=rows, other=0)
    attn_mask = memory.attn_mask + head * memory.attn_mask_to_head + wide * memory.attn_mask_to_row
    bias = memory.bias + head * memory.bias_to_head + wide * memory.bias_to_row
    view = View(rows, begin, end, attn_mask, bias, memory.attn_mask_to_key, memory.bias_to_key)
    return QueryBlock(q, upstream, terms, scales, view, memory.dropout, head, query)


@triton.jit
def logit_gradients(logits, dp, terms, key, first_key, GIVEN: tl.constexpr, KEYS_FIRST: tl.constexpr):
    """Weights p, and dz. Where a key is hidden they may be anything."""
    # No logit is above its row's lse, but this lse was rounded.
    t = logits - beside(terms.lse, KEYS_FIRST)
    t = tl.where(t > 0, 0.0, t)
    p = tl.exp2(t)
    if GIVEN.SINK:
        dp = dp * beside(terms.share, KEYS_FIRST)
    slope = dp + beside(terms.base, KEYS_FIRST)
    if GIVEN.ENTROPY or GIVEN.VARIANCE:
        u = tl.where(t < LEAST, LEAST, t) * LN2 + beside(terms.entropy, KEYS_FIRST)
        factor = beside(terms.linear, KEYS_FIRST)
        if GIVEN.VARIANCE:
            factor = factor + u * beside(terms.quadratic, KEYS_FIRST)
        slope += u * factor
    if GIVEN.COLLISION:
        slope += p * beside(terms.collision, KEYS_FIRST)
    if GIVEN.DISTANCE:
        away = distances(terms.own_key, key, first_key, KEYS_FIRST)
        slope += beside(terms.d_distance, KEYS_FIRST) * away
    if GIVEN.MAX_PROBABILITY:
        is_largest = beside(terms.largest_key, KEYS_FIRST) == beside(key, not KEYS_FIRST)
        slope += tl.where(is_largest, beside(terms.d_most, KEYS_FIRST), 0.0)
    return p, p * slope


@triton.jit
def tile_gradients(
    scores, dp, block, key, first_key, inside, cap,
    SHAPE: tl.constexpr, GIVEN: tl.constexpr, MASKED: tl.constexpr, KEYS_FIRST: tl.constexpr,
):  # fmt: skip
    """From q.k and do.v of a tile: weights and gradients of logits and of scaled scores, all 0 where a key is
    hidden from a row, and which keys each row sees. With KEYS_FIRST rows end in the sums of keys, so that the sink and
    lambda are in them; without, the caller multiplies each row at its end."""
    logits, slope = logits_of(scores, block.scales, cap, SHAPE.CAPPED, KEYS_FIRST)
    seen = scores == scores
    if MASKED:
        logits, seen = apply_masks(logits, block.view, block.scales.on_bias, key, inside, SHAPE, KEYS_FIRST)
    kept = seen
    if SHAPE.DROPOUT:
        kept = kept_weights(
            block.dropout, block.head, block.query, first_key, SHAPE.ROWS, SHAPE.KEYS, SHAPE.FOURS, KEYS_FIRST
        )  # fmt: skip
        dp = tl.where(kept, dp * block.dropout.factor, 0.0)
    p, dz = logit_gradients(logits, dp, block.terms, key, first_key, GIVEN, KEYS_FIRST)
    ds = dz
    if SHAPE.CAPPED:
        ds = dz * slope
    if KEYS_FIRST:
        # Before the selection: a row's own may be no numbers, and keys that it does not see must not hear of them.
        if GIVEN.SINK:
            p = p * beside(block.terms.share, True)
        ds = ds * beside(block.scales.before * LN2, True)
    if SHAPE.DROPOUT:
        p = p * kept.to(tl.float32)  # a weight that is no number stays none
    if MASKED:
        p, dz, ds = tl.where(seen, p, 0.0), tl.where(seen, dz, 0.0), tl.where(seen, ds, 0.0)
    return p, dz, ds, seen


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
