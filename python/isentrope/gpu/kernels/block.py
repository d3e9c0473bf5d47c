"""Query block: rows of a program with their scales and masks, and the keys and values that they read."""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from isentrope.gpu.kernels.dropout import Dropout
from isentrope.gpu.kernels.softmax import Scales, View, apply_masks, load_scales
from isentrope.gpu.kernels.span import all_masked, program_from_the_end, sees_keys, share_of, span_of_keys, visit
from isentrope.gpu.kernels.tile import Matrix, advance, load_rows, load_tile, offset, propagate_nonfinite, zeros


class QueryBlock(NamedTuple):
    """Tile of queries: scales and masks of its rows, the key at each row's own position, and the state of dropout."""

    q: tl.tensor
    scales: Scales
    view: View
    own_key: tl.tensor
    dropout: Dropout
    head: tl.tensor
    query: tl.tensor


class Cache(NamedTuple):
    """Keys and values, contiguous or in the pages of `table`; some row of the block sees start ... stop - 1.

    k_tiles, v_tiles: tensor descriptors of the same; pointers without them."""

    k: Matrix
    v: Matrix
    k_to_page: tl.tensor
    v_to_page: tl.tensor
    table: tl.tensor
    start: tl.tensor
    stop: tl.tensor
    k_tiles: tl.tensor
    v_tiles: tl.tensor
    batch: tl.tensor
    kv_head: tl.tensor


class Place(NamedTuple):
    """Rows of a query block: which exist, their batch, heads and queries, the key head and the sequence that they read.
    Last are the numbers of batches, heads and queries."""

    rows: tl.tensor
    batch: tl.tensor
    head: tl.tensor
    query: tl.tensor
    kv_head: tl.tensor
    sequence: tl.tensor
    batches: tl.tensor
    heads: tl.tensor
    queries: tl.tensor


class Strides(NamedTuple):
    batch: tl.tensor
    head: tl.tensor
    row: tl.tensor
    column: tl.tensor


class Resolved(NamedTuple):
    """Results of rows_kernel, and the numbers of sequences, heads and queries."""

    begins: tl.tensor
    ends: tl.tensor
    own_keys: tl.tensor
    scales: tl.tensor
    batches: tl.tensor
    heads: tl.tensor
    queries: tl.tensor


@triton.jit
def place_in_sequence(first, heads, kv_heads, queries, starts, COUNT: tl.constexpr, ROWS: tl.constexpr):
    """Returns COUNT of a program's rows of packed queries: of all heads that share a key head, in one sequence.

    Query blocks of sequence s begin at group * starts[s] // ROWS + s, which leaves room for all blocks of the sequences
    before. Blocks in excess have no rows. Invalid starts are clamped."""
    group, blocks = heads // kv_heads, tl.num_programs(0) // kv_heads
    block, own = blocks - 1 - tl.program_id(0) % blocks, tl.program_id(0) // blocks
    low, high = block * 0, blocks - group * queries // ROWS
    while high - low > 1:
        middle = (low + high) // 2
        begun = tl.load(starts + middle) * group // ROWS + middle <= block
        low, high = tl.where(begun, middle, low), tl.where(begun, high, middle)
    begin = tl.minimum(tl.maximum(tl.load(starts + low), 0), queries).to(tl.int32)
    count = tl.maximum(tl.minimum(tl.load(starts + low + 1), queries).to(tl.int32) - begin, 0)
    index = (block - (begin.to(tl.int64) * group // ROWS).to(tl.int32) - low) * ROWS + first + tl.arange(0, COUNT)
    rows, index = index < group * count, tl.maximum(index, 0)
    one = tl.maximum(count, 1)
    zero = (block * 0).to(tl.int64)
    return Place(rows, zero, own * group + index // one, begin + index % one, own.to(tl.int64), low.to(tl.int64), zero + 1, heads, queries)


@triton.jit
def place_of_rows(
    first, heads, kv_heads, queries, starts, COUNT: tl.constexpr, ROWS: tl.constexpr, PACKED: tl.constexpr
):  # fmt: skip
    """Returns COUNT of a program's ROWS rows: of one query head or, packed, of all heads that share a key head. starts:
    beginnings of packed queries, or None."""
    if starts is not None:
        return place_in_sequence(first, heads, kv_heads, queries, starts, COUNT, ROWS)
    group = heads // kv_heads
    own_heads, length = heads, queries
    if PACKED:
        own_heads, length = kv_heads, group * queries
    tile, lane, lanes = program_from_the_end(tl.cdiv(length, ROWS))
    batches = lanes.to(tl.int64) // own_heads
    batch, own = (lane // own_heads).to(tl.int64), lane % own_heads
    index = tile * ROWS + first + tl.arange(0, COUNT)
    if PACKED:
        head, query = own * group + index // queries, index % queries
        return Place(index < length, batch, head, query, own.to(tl.int64), batch, batches, heads, queries)
    else:
        return Place(index < length, batch, tl.zeros_like(index) + own, index, (own // group).to(tl.int64), batch, batches, heads, queries)


@triton.jit
def index_of(place):
    """Returns the indices of the rows among all [batch, heads, queries], and the number of all."""
    return (place.batch * place.heads + place.head) * place.queries + place.query, place.batches * place.heads * place.queries


@triton.jit
def offsets(place, strides):
    """Returns the offsets of the rows in a tensor."""
    return place.batch * strides.batch + place.head.to(tl.int64) * strides.head + place.query.to(tl.int64) * strides.row


@triton.jit
def load_block(
    q, to_q, dim, attn_mask, to_attn_mask, bias, to_bias, place, resolved, dropout, SHAPE: tl.constexpr, WANTED: tl.constexpr
):  # fmt: skip
    q_tile = load_rows(Matrix(q, to_q.row, to_q.column, dim), offsets(place, to_q), place.rows, SHAPE.DIM, True, SHAPE.EVEN)
    batch, rows = place.batch % resolved.batches, place.rows
    row = (batch * resolved.heads + place.head % resolved.heads) * resolved.queries + place.query
    plane = resolved.batches.to(tl.int64) * resolved.heads * resolved.queries
    bound = batch * resolved.queries + place.query
    begin, end = tl.load(resolved.begins + bound, mask=rows, other=0), tl.load(resolved.ends + bound, mask=rows, other=0)
    attn_mask += offsets(place, to_attn_mask)
    bias += offsets(place, to_bias)
    own_key = begin
    if WANTED.DISTANCE >= 0:
        own_key = tl.load(resolved.own_keys + bound, mask=rows, other=0)
    view = View(rows, begin, end, attn_mask, bias, to_attn_mask.column, to_bias.column)
    scales = load_scales(resolved.scales, plane, row, rows, SHAPE)
    return QueryBlock(q_tile, scales, view, own_key, dropout, place.head, place.query)


@triton.jit
def visible_span(view, full_end, SHAPE: tl.constexpr):
    """Returns the tiles of keys that a query block sees. full_end: end of those that may hide nothing."""
    span = span_of_keys(view, full_end, SHAPE.KEYS)
    if SHAPE.MASKED:
        span = all_masked(span)
    return span


@triton.jit
def span_of_block(block, splits, SHAPE: tl.constexpr, SPLIT: tl.constexpr):
    # A negative scale takes the masking loop, because the largest score is then not the largest logit.
    span = visible_span(block.view, tl.where(block.scales.before < 0, 0, block.view.end), SHAPE)
    if SPLIT:
        span = share_of(span, tl.program_id(2), splits)
    return span


@triton.jit
def cache_of_block(
    k, to_k, dim, k_tiles, v, to_v, value_dim, v_tiles, table, batch, kv_head, view, last, SHAPE: tl.constexpr, PAGE: tl.constexpr
):  # fmt: skip
    """Returns the keys and values that a query block reads. table: the sequence's pages, if there are any. last: end of the
    tiles that it visits."""
    some = view.rows & (view.end > view.begin)
    start = tl.min(tl.where(some, view.begin, 2147483647), 0)
    stop = tl.minimum(last * SHAPE.KEYS, tl.max(tl.where(some, view.end, 0), 0))
    if not SHAPE.DESCRIPTORS:
        # Triton 3.6 returns no None.
        k_tiles, v_tiles = k, v
    k += kv_head * to_k.head
    v += kv_head * to_v.head
    if PAGE == 0:
        k += batch * to_k.batch
        v += batch * to_v.batch
    return Cache(
        Matrix(k, to_k.row, to_k.column, dim), Matrix(v, to_v.row, to_v.column, value_dim), to_k.batch, to_v.batch,
        table, start, stop, k_tiles, v_tiles, batch.to(tl.int32), kv_head.to(tl.int32),
    )  # fmt: skip


@triton.jit
def offsets_of_keys(key, matrix, to_page, table, PAGE: tl.constexpr):
    """Returns the offsets of keys, contiguous or in the pages of PAGE keys that a sequence's row of the table names."""
    if PAGE > 0:
        return tl.load(table + key // PAGE).to(tl.int64) * to_page + offset(key % PAGE) * matrix.to_row
    else:
        return offset(key) * matrix.to_row


@triton.jit
def load_keys(matrix, to_page, tiles, first, inside, cache, KEYS: tl.constexpr, COLUMNS: tl.constexpr, MASKED: tl.constexpr,
              EVEN: tl.constexpr, PAGE: tl.constexpr, STAND_IN: tl.constexpr, DESCRIPTORS: tl.constexpr):  # fmt: skip
    """Loads a tile of keys or values, contiguous or in pages of PAGE keys.

    STAND_IN: reads the nearest key that some row sees instead of keys that no row sees. MASKED: these are 0. tiles: with
    DESCRIPTORS the tensor descriptor that loads tiles without hidden keys."""
    if DESCRIPTORS and not MASKED:
        outer, row = cache.batch, first
        if PAGE > 0:
            outer, row = tl.load(cache.table + first // PAGE), first % PAGE
        return tl.reshape(tiles.load([outer, cache.kv_head, row, 0]), [KEYS, COLUMNS])
    elif STAND_IN or PAGE > 0:
        key = tl.minimum(tl.maximum(first + tl.arange(0, KEYS), cache.start), cache.stop - 1)
        offsets = offsets_of_keys(key, matrix, to_page, cache.table, PAGE)
        return load_rows(matrix, offsets, inside, COLUMNS, MASKED and not STAND_IN, EVEN)
    else:
        return load_tile(advance(matrix, first), inside, KEYS, COLUMNS, MASKED, EVEN)


@triton.jit
def load_k(first, inside, cache, SHAPE: tl.constexpr, MASKED: tl.constexpr, PAGE: tl.constexpr):
    """Loads the tile of keys from `first` on, as load_keys says."""
    return load_keys(
        cache.k, cache.k_to_page, cache.k_tiles, first, inside, cache, SHAPE.KEYS, SHAPE.DIM, MASKED, SHAPE.EVEN, PAGE, SHAPE.ONE_LOOP,
        SHAPE.DESCRIPTORS,
    )  # fmt: skip


@triton.jit
def load_v(first, inside, cache, SHAPE: tl.constexpr, MASKED: tl.constexpr, PAGE: tl.constexpr):
    """Loads the tile of values from `first` on, as load_keys says."""
    return load_keys(
        cache.v, cache.v_to_page, cache.v_tiles, first, inside, cache, SHAPE.KEYS, SHAPE.COLUMNS, MASKED, SHAPE.EVEN_COLUMNS, PAGE,
        SHAPE.ONE_LOOP, SHAPE.DESCRIPTORS,
    )  # fmt: skip


@triton.jit
def keys_of(tile, cache, SHAPE: tl.constexpr):
    """Returns the first key of a tile, its keys, and which of them some row may see."""
    first = tile * SHAPE.KEYS
    key = first + tl.arange(0, SHAPE.KEYS)
    return first, key, (key >= cache.start) & (key < cache.stop)


@triton.jit
def count_nonfinite(
    tile, acc, block, cache, t_cache, VALUES: tl.constexpr, MOVES: tl.constexpr, PAGE: tl.constexpr, SHAPE: tl.constexpr,
    MASKED: tl.constexpr,
):  # fmt: skip
    """Adds, for each row and column, the number of NaN and Inf among the keys of a tile that the row sees. VALUES: among its values
    instead. MOVES: among their tangents too."""
    first, key, inside = keys_of(tile, cache, SHAPE)
    _, seen = apply_masks(zeros(SHAPE.ROWS, SHAPE.KEYS), block.view, block.scales.on_bias, key, inside, SHAPE, False)
    if VALUES:
        acc = propagate_nonfinite(seen, load_v(first, inside, cache, SHAPE, MASKED, PAGE), acc, SHAPE)
        if MOVES:
            acc = propagate_nonfinite(seen, load_v(first, inside, t_cache, SHAPE, MASKED, PAGE), acc, SHAPE)
    else:
        acc = propagate_nonfinite(seen, load_k(first, inside, cache, SHAPE, MASKED, PAGE), acc, SHAPE)
        if MOVES:
            acc = propagate_nonfinite(seen, load_k(first, inside, t_cache, SHAPE, MASKED, PAGE), acc, SHAPE)
    return acc


@triton.jit
def nonfinite_numbers(
    span, block, cache, t_cache, VALUES: tl.constexpr, MOVES: tl.constexpr, PAGE: tl.constexpr, SHAPE: tl.constexpr
):  # fmt: skip
    """Returns, for each row and column, the number of NaN and Inf among the keys or values of a span that the row sees."""
    acc = zeros(SHAPE.ROWS, SHAPE.COLUMNS if VALUES else SHAPE.DIM)
    return visit(span, sees_keys, (block,), count_nonfinite, acc, (cache, t_cache, VALUES, MOVES, PAGE), SHAPE, None, True)
