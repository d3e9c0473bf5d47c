"""Methods that send keys and values to the queries: `ring` and `all_gather`.

For each shift s, rank r needs the keys of rank r - s, and has those that rank r + s needs. `ring` takes the shifts in
order: the next block is in flight while the current one is computed, so a rank holds two blocks besides its own.
`all_gather` takes all shifts at once: one exchange, one product, and the whole sequence in memory. Both send only the
keys that some row sees, directly from their owner.

The backward pass repeats this with the rows' statistics over the whole sequence, so that each block's gradients need no
other block. Gradients of keys and values return to their owner, who sums them in float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from isentrope._core.library import AXES, CHECKED
from isentrope._core.masks import Masks
from isentrope.distributed.agreement import Configuration, parsed
from isentrope.distributed.exchange import BACKWARD, FORWARD, Wait, resolved, start
from isentrope.distributed.layout import Range, joined, local_slices, overlap, pieces
from isentrope.distributed.rows import Rows, call_of_segment, empty_results, sink_gradient, upstream_of_blocks
from isentrope.distributed.visibility import Segment, keys_seen, needed_keys, segments, spanned
from isentrope.statistics import with_needs


class Block(NamedTuple):
    """Keys and values [batch, kv_heads, keys, dim | value_dim] of a range of the sequence."""

    keys: Range
    k: Tensor
    v: Tensor

    def part(self, keys: Range) -> Block:
        """Returns a view of a range within the block."""
        rows = slice(keys[0] - self.keys[0], keys[1] - self.keys[0])
        return Block(keys, self.k[:, :, rows], self.v[:, :, rows])


class KeyExchange:
    """One pass of keys and values over the ranks of a call."""

    def __init__(
        self, configuration: Configuration, masks: Masks, group: ProcessGroup, k: Tensor, v: Tensor, phase: str
    ) -> None:
        self.group, self.k, self.v, self.phase = group, k, v, phase
        self.rank, self.ranks, self.tag = group.rank(), group.size(), configuration.tag
        self.length, self.documents = configuration.sequence_length, documents_of(masks, configuration.sequence_length)
        self.pieces_by_rank = pieces(self.length, self.ranks, configuration.layout)
        every_piece = [piece for ranges in self.pieces_by_rank for piece in ranges]
        found = iter(keys_seen(masks, configuration.batch, self.length, every_piece))
        self.seen = [[next(found) for _ in ranges] for ranges in self.pieces_by_rank]
        """Key ranges that each piece of each rank sees, one for each sequence of the batch."""
        own = self.own_pieces
        self.own = [Block(keys, k[:, :, rows], v[:, :, rows]) for keys, rows in zip(own, local_slices(own, own))]
        shifts = range(self.ranks)
        self.steps = [[shift] for shift in shifts] if configuration.method == "ring" else [list(shifts)]

    @property
    def own_pieces(self) -> list[Range]:
        """Ranges of rows of this rank."""
        return self.pieces_by_rank[self.rank]

    def needed(self, rank: int, owner: int) -> list[Range]:
        """Returns the keys of `owner` that `rank` computes with."""
        return needed_keys([range_ for piece in self.seen[rank] for range_ in piece], self.pieces_by_rank[owner])

    def blocks(self) -> Iterator[list[Block]]:
        """Yields the blocks of each step, in the order of the sequence, while the next step's blocks are in flight."""
        under_way = self._start(self.steps[0])
        for step in range(len(self.steps)):
            blocks, wait = under_way
            if step + 1 < len(self.steps):
                under_way = self._start(self.steps[step + 1])
            wait()
            yield joined_blocks(blocks)

    def _start(self, shifts: list[int]) -> tuple[list[Block], Wait]:
        outgoing = {to: parts_of(self.own, self.needed(to, self.rank)) for to, _ in self._peers(shifts)}
        incoming = {owner: self.needed(self.rank, owner) for _, owner in self._peers(shifts)}
        received, wait = self._exchanged(outgoing, incoming)
        return (self.own if 0 in shifts else []) + received, wait

    def start_return(self, shifts: list[int], gradients: list[Block]) -> tuple[list[Block], Wait]:
        """Sends gradients of a step's blocks, in float32, to their owners, and receives those of own keys."""
        outgoing = {owner: parts_of(gradients, self.needed(self.rank, owner)) for _, owner in self._peers(shifts)}
        incoming = {to: self.needed(to, self.rank) for to, _ in self._peers(shifts)}
        return self._exchanged(outgoing, incoming, torch.float32)

    def _exchanged(
        self, outgoing: dict[int, list[Block]], incoming: dict[int, list[Range]], dtype: torch.dtype | None = None
    ) -> tuple[list[Block], Wait]:
        """Starts to send blocks to peers, and to fill blocks of the incoming ranges, which it returns."""
        received = {peer: self._empty(ranges, dtype) for peer, ranges in incoming.items()}
        sends, receives = (
            {peer: [x.contiguous() for block in blocks for x in block[1:]] for peer, blocks in each.items() if blocks}
            for each in (outgoing, received)
        )
        wait = start(self.group, self.tag, self.phase, sends, receives)
        return [block for blocks in received.values() for block in blocks], wait

    def _peers(self, shifts: list[int]) -> list[tuple[int, int]]:
        """Returns the ranks to send to and to receive from at each shift with messages."""
        return [((self.rank + shift) % self.ranks, (self.rank - shift) % self.ranks) for shift in shifts if shift]

    def _empty(self, ranges: list[Range], dtype: torch.dtype | None = None) -> list[Block]:
        def rows(like: Tensor, count: int) -> Tensor:
            return like.new_empty((*like.shape[:2], count, like.shape[3]), dtype=dtype)

        return [Block((begin, end), *(rows(x, end - begin) for x in (self.k, self.v))) for begin, end in ranges]


def joined_blocks(blocks: list[Block]) -> list[Block]:
    """Returns the blocks in the order of the sequence, with touching ones joined."""
    merged = []
    for begin, end in joined([block.keys for block in blocks]):
        inside = sorted((b for b in blocks if begin <= b.keys[0] < end), key=lambda b: b.keys)
        if len(inside) == 1:
            merged.append(inside[0])
        else:
            merged.append(Block((begin, end), *(torch.cat(parts, 2) for parts in list(zip(*inside))[1:])))
    return merged


def parts_of(blocks: list[Block], ranges: list[Range]) -> list[Block]:
    """Returns the parts of the blocks in these ranges, each of which lies in one block."""
    return [next(b for b in blocks if b.keys[0] <= begin and end <= b.keys[1]).part((begin, end)) for begin, end in ranges]


def calls(exchange: KeyExchange, block: Block) -> Iterator[tuple[Segment, slice, Block]]:
    """Yields the segments that need a block, with this rank's rows and the part of the block."""
    for piece, key_ranges in zip(exchange.own_pieces, exchange.seen[exchange.rank]):
        seen = overlap(block.keys, spanned(piece, key_ranges))
        for segment in segments(exchange.documents, exchange.length, piece, seen) if seen[0] < seen[1] else ():
            (local_rows,) = local_slices(exchange.own_pieces, [segment.queries])
            yield segment, local_rows, block.part(segment.keys)


def documents_of(masks: Masks, length: int) -> tuple[int, ...] | None:
    """Returns beginnings of documents and the end, from the CPU. Raises ValueError unless they cover the length."""
    if masks.cu_seqlens_q is None:
        return None
    documents = tuple(masks.cu_seqlens_q.tolist())
    if (documents[:1], documents[-1:]) != ((0,), (length,)) or any(begin > end for begin, end in pairwise(documents)):
        raise ValueError(f"[isentrope.distributed] documents must rise from 0 to {length}; got {list(documents)}")
    return documents


_NO_ROWS = Segment((0, 0), (0, 0), 0, 0)
_LISTS = [name for name in Masks._fields if AXES[name]]
_INPUTS = "".join(f", Tensor? {name}" for name in ("sinks", *_LISTS))
_SCHEMA = f"Tensor q, Tensor k, Tensor v{_INPUTS}, str configuration, str group"


def _masks(c: Configuration, lists: Sequence[Tensor | None]) -> Masks:
    return Masks(**dict(zip(_LISTS, lists)), **c.masks)


@torch.library.custom_op(
    "isentrope::ring_attention", mutates_args=(), schema=f"({_SCHEMA}) -> (Tensor, Tensor, Tensor, Tensor)"
)
def ring_attention(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Computes the operator's results and, for the backward pass, the position of each row's largest key."""
    *lists, configuration, group = rest
    c = parsed(configuration)
    listed = _masks(c, lists)
    masks = listed.on(q.device)
    # Validates with the operator on every rank, also those without rows, before any waits for another.
    CHECKED.attention(*call_of_segment(c, masks, _NO_ROWS, *(x[:, :, :0] for x in (q, k, v)), sinks), 0)  # type: ignore[call-arg]
    exchange = KeyExchange(c, listed, resolved(group), k, v, FORWARD)
    wanted = with_needs(c.statistics)
    rows = Rows(q, v.shape[3], wanted)
    for blocks in exchange.blocks():
        for block in blocks:
            for segment, local_rows, part in calls(exchange, block):
                call = call_of_segment(c, masks, segment, q[:, :, local_rows], part.k, part.v)
                rows.add(local_rows, segment.keys[0], CHECKED.attention(*call, wanted))
    return rows.results(sinks)


@ring_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return empty_results(q, v.shape[3], with_needs(parsed(rest[-2]).statistics))


@torch.library.custom_op(
    "isentrope::ring_attention_backward", mutates_args=(),
    schema=f"({_SCHEMA}, Tensor output, Tensor statistics, Tensor largest, Tensor? d_output, Tensor? d_statistics) -> "
    "(Tensor, Tensor, Tensor, Tensor)",
)  # fmt: skip
def ring_attention_backward(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the gradients of q, k, v and sinks; those of sinks are for this rank's rows."""
    *lists, configuration, group, output, statistics, largest, d_output, d_statistics = rest
    c = parsed(configuration)
    listed = _masks(c, lists)
    masks, exchange = listed.on(q.device), KeyExchange(c, listed, resolved(group), k, v, BACKWARD)
    upstream = upstream_of_blocks(sinks, with_needs(c.statistics), output, statistics, d_output, d_statistics, largest)
    totals = [torch.zeros_like(x, dtype=torch.float32, memory_format=torch.contiguous_format) for x in (q, k, v)]

    def gradients_of(block: Block) -> Block:
        """Returns the gradients of a block's keys from this rank's rows, and adds those of the rows to their total."""
        gradients = Block(block.keys, *(torch.zeros_like(x, dtype=torch.float32) for x in block[1:]))
        for segment, local_rows, part in calls(exchange, block):
            call = call_of_segment(c, masks, segment, q[:, :, local_rows], part.k, part.v, sinks)
            of_rows = upstream.of_rows(local_rows, segment.keys[0])
            dq, dk, dv, *_ = CHECKED.attention_backward(*call, *of_rows, False, False, False, True)
            totals[0][:, :, local_rows] += dq
            for total, gradient in zip(gradients.part(segment.keys)[1:], (dk, dv)):
                total += gradient
        return gradients

    def add(blocks: list[Block]) -> None:
        for block in blocks:
            (local_keys,) = local_slices(exchange.own_pieces, [block.keys])
            totals[1][:, :, local_keys] += block.k
            totals[2][:, :, local_keys] += block.v

    returned: list[Block] = []
    wait = start(exchange.group, exchange.tag, exchange.phase, {}, {})
    for step, blocks in enumerate(exchange.blocks()):
        gradients = [gradients_of(block) for block in blocks]
        if 0 in exchange.steps[step]:
            add(parts_of(gradients, exchange.own_pieces))
        wait()
        add(returned)
        returned, wait = exchange.start_return(exchange.steps[step], gradients)
        del blocks, gradients  # freed now, because the next block may wait long
    wait()
    add(returned)
    return (*(total.to(q.dtype) for total in totals), sink_gradient(sinks, output, statistics, d_output))  # type: ignore[return-value]


@ring_attention_backward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    gradients = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v)]
    return (*gradients, q.new_empty(0 if sinks is None else sinks.shape[0], dtype=torch.float32))  # type: ignore[return-value]


def _save(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[2:])
    ctx.save_for_backward(*inputs[:-2], *output[:2], output[3])
    ctx.names = inputs[-2:]


def _gradients(ctx: Any, d_output: Tensor | None, d_statistics: Tensor | None, *_: Any) -> tuple:
    *tensors, output, statistics, largest = ctx.saved_tensors
    if d_output is None and d_statistics is None:
        return (None,) * len(ctx.needs_input_grad)
    if output.dtype is torch.float64:  # whose operator computes the statistics of a block again, instead of reading the row's
        raise NotImplementedError(
            '[isentrope.distributed] gradients of method="ring" and "all_gather" are not implemented in float64; '
            'use method="all_to_all", or float32'
        )
    dq, dk, dv, d_sinks = ring_attention_backward(
        *tensors, *ctx.names, output, statistics, largest, d_output, d_statistics
    )
    return dq, dk, dv, d_sinks if ctx.needs_input_grad[3] else None, *(None,) * (len(_LISTS) + 2)


def _no_second_order(ctx: Any, *_: Any) -> tuple:
    raise NotImplementedError("[isentrope.distributed] double backward is not implemented; got create_graph=True")


ring_attention.register_autograd(_gradients, setup_context=_save)
ring_attention_backward.register_autograd(_no_second_order)
