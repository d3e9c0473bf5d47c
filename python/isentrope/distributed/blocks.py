"""The two ways in which keys and values travel to the queries: `ring` and `all_gather`.

Rank r needs the keys of rank r - s, and has what rank r + s needs, for each shift s. `ring` takes the shifts one after
the other: the next block is under way while the one at hand is computed, and two of them are all that a rank holds
besides its own. `all_gather` takes all of them at once: one exchange, one product, and the whole sequence in memory.
Both send of each block only the keys that somebody sees, straight from its owner.

The backward pass does the same once more, with the statistics that the rows have over the whole sequence: with those the
gradients of one block need no other, and those of its keys and values go back to their owner.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from isentrope._operators import OPS
from isentrope._operators import _no_second_order as no_second_order
from isentrope.distributed.agreement import Configuration, parsed
from isentrope.distributed.exchange import Pending, resolved, start
from isentrope.distributed.layout import Range, joined, local_slices, overlap, pieces
from isentrope.distributed.rows import Rows, arguments, empty_results, needed_statistics, sink_gradient
from isentrope.distributed.visibility import Mask, Segment, needed_keys, seen_keys, segments


class Block(NamedTuple):
    """Keys and values [batch, kv_heads, keys, dim | value_dim] of a range of the sequence."""

    keys: Range
    k: Tensor
    v: Tensor


class Journey:
    """One pass of keys and values over the ranks of a call."""

    def __init__(self, configuration: Configuration, mask: Mask, group: ProcessGroup, k: Tensor, v: Tensor) -> None:
        self.mask, self.group, self.k, self.v = mask, group, k, v
        self.rank, self.ranks, self.tag = group.rank(), group.size(), configuration.tag
        self.held = pieces(configuration.sequence_length, self.ranks, configuration.layout)
        shifts = range(self.ranks)
        self.steps = [[shift] for shift in shifts] if configuration.method == "ring" else [list(shifts)]

    def needed(self, rank: int, owner: int) -> list[Range]:
        """What `rank` computes with of the keys of `owner`: of its own all, so that every row is computed."""
        return self.held[rank] if rank == owner else needed_keys(self.mask, self.held[rank], self.held[owner])

    def own(self, ranges: list[Range]) -> list[Block]:
        slices = local_slices(self.held[self.rank], ranges)
        return [Block(range_, self.k[:, :, at], self.v[:, :, at]) for range_, at in zip(ranges, slices)]

    def blocks(self) -> Iterator[list[Block]]:
        """The blocks of each step, in the order of the sequence; those of the next step are under way."""
        under_way = self._start(self.steps[0])
        for step in range(len(self.steps)):
            received, pending = under_way
            if step + 1 < len(self.steps):
                under_way = self._start(self.steps[step + 1])
            pending.wait()
            yield joined_blocks([block for owner, message in received.items() for block in self._read(owner, message)])

    def _start(self, shifts: list[int]) -> tuple[dict[int, Tensor | None], Pending]:
        sends: dict[int, Tensor] = {}
        receives: dict[int, Tensor | None] = {}
        for shift in shifts:
            if shift == 0:
                receives[self.rank] = None
                continue
            to, owner = (self.rank + shift) % self.ranks, (self.rank - shift) % self.ranks
            if ranges := self.needed(to, self.rank):
                sends[to] = flat([x for block in self.own(ranges) for x in block[1:]])
            if ranges := self.needed(self.rank, owner):
                receives[owner] = self.k.new_empty(self._size(ranges))
        travelling = {owner: message for owner, message in receives.items() if message is not None}
        return receives, start(self.group, self.tag, sends, travelling)

    def _read(self, owner: int, message: Tensor | None) -> list[Block]:
        ranges = self.needed(self.rank, owner)
        return self.own(ranges) if message is None else self.unpacked(ranges, message)

    def _size(self, ranges: list[Range]) -> int:
        of_key = self.k.shape[0] * self.k.shape[1] * (self.k.shape[3] + self.v.shape[3])
        return sum(end - begin for begin, end in ranges) * of_key

    def unpacked(self, ranges: list[Range], message: Tensor) -> list[Block]:
        found, at = [], 0
        for begin, end in ranges:
            parts = []
            for like in (self.k, self.v):
                shape = (*like.shape[:2], end - begin, like.shape[3])
                size = shape[0] * shape[1] * shape[2] * shape[3]
                parts.append(message[at : at + size].view(shape))
                at += size
            found.append(Block((begin, end), *parts))
        return found

    def start_return(self, shifts: list[int], blocks: list[Block]) -> tuple[dict[int, Tensor], Pending]:
        """Sends the gradients of a step's blocks back to their owners; those of our own keys come back."""
        sends, receives = {}, {}
        for shift in shifts:
            if shift == 0:
                continue
            to, owner = (self.rank + shift) % self.ranks, (self.rank - shift) % self.ranks
            if ranges := self.needed(self.rank, owner):
                sends[owner] = flat([x for block in cut(blocks, ranges) for x in block[1:]])
            if ranges := self.needed(to, self.rank):
                receives[to] = self.k.new_empty(self._size(ranges))
        return receives, start(self.group, self.tag, sends, receives)


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def joined_blocks(blocks: list[Block]) -> list[Block]:
    """In the order of the sequence, those that touch as one."""
    found = []
    for begin, end in joined([block.keys for block in blocks]):
        inside = sorted((b for b in blocks if begin <= b.keys[0] < end), key=lambda b: b.keys)
        if len(inside) == 1:
            found.append(inside[0])
        else:
            found.append(Block((begin, end), *(torch.cat(parts, 2) for parts in list(zip(*inside))[1:])))
    return found


def cut(blocks: list[Block], ranges: list[Range]) -> list[Block]:
    """The parts of the blocks that are these ranges, each of which lies in one block."""
    found = []
    for begin, end in ranges:
        block = next(b for b in blocks if b.keys[0] <= begin and end <= b.keys[1])
        at = slice(begin - block.keys[0], end - block.keys[0])
        found.append(Block((begin, end), block.k[:, :, at], block.v[:, :, at]))
    return found


def calls(mask: Mask, queries: list[Range], block: Block) -> Iterator[tuple[Segment, Tensor, Tensor]]:
    """The calls of the operator that give the rows of `queries` what they see of a block."""
    for piece in queries:
        seen = overlap(block.keys, seen_keys(mask, piece))
        for segment in segments(mask, piece, seen) if seen[0] < seen[1] else ():
            at = slice(segment.keys[0] - block.keys[0], segment.keys[1] - block.keys[0])
            yield segment, block.k[:, :, at], block.v[:, :, at]


class Optional(NamedTuple):
    """The tensors that a call may have besides q, k and v."""

    sinks: Tensor | None
    key_begin: Tensor | None
    key_end: Tensor | None
    documents: Tensor | None


def mask_of(configuration: Configuration, tensors: Optional) -> Mask:
    c = configuration
    begin = 0 if tensors.key_begin is None or c.batch == 0 else int(tensors.key_begin.min())
    end = c.sequence_length if tensors.key_end is None or c.batch == 0 else int(tensors.key_end.max())
    padding = overlap((0, c.sequence_length), (begin, max(begin, end)))
    documents = None if tensors.documents is None else tuple(tensors.documents.tolist())
    if documents is not None and ((documents[:1], documents[-1:]) != ((0,), (c.sequence_length,)) or
                                  any(begin > end for begin, end in pairwise(documents))):  # fmt: skip
        raise ValueError(
            f"[isentrope.distributed] documents must rise from 0 to {c.sequence_length}; got {list(documents)}"
        )
    return Mask(c.causal, c.window_left, c.window_right, c.sequence_length, padding, documents)


@torch.library.custom_op("isentrope::travelling_attention", mutates_args=())
def travelling_attention(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, key_begin: Tensor | None, key_end: Tensor | None,
    documents: Tensor | None, configuration: str, group: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """As the operator `attention`: output, the statistics of the configuration, support."""
    c = parsed(configuration)
    tensors = Optional(sinks, key_begin, key_end, documents)
    journey = Journey(c, mask_of(c, tensors), resolved(group), k, v)
    held = journey.held[journey.rank]
    wanted = needed_statistics(c.statistics)
    rows = Rows(q, v.shape[3], wanted)
    for blocks in journey.blocks():
        for block in blocks:
            for segment, keys, values in calls(journey.mask, held, block):
                (at,) = local_slices(held, [segment.queries])
                call = arguments(c, segment, q[:, :, at], keys, values, None, tensors.key_begin, tensors.key_end)
                rows.add(at, OPS.attention(*call, wanted))
    return rows.results(sinks)


@travelling_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    return empty_results(q, v.shape[3], needed_statistics(parsed(rest[4]).statistics))


@torch.library.custom_op("isentrope::travelling_attention_backward", mutates_args=())
def travelling_attention_backward(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, key_begin: Tensor | None, key_end: Tensor | None,
    documents: Tensor | None, configuration: str, group: str,
    output: Tensor, statistics: Tensor, d_output: Tensor | None, d_statistics: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k, v and sinks; those of sinks are of this rank's rows."""
    c = parsed(configuration)
    tensors = Optional(sinks, key_begin, key_end, documents)
    journey = Journey(c, mask_of(c, tensors), resolved(group), k, v)
    held = journey.held[journey.rank]
    wanted = needed_statistics(c.statistics)
    totals = [torch.zeros_like(x, dtype=torch.float32, memory_format=torch.contiguous_format) for x in (q, k, v)]
    home: tuple[dict[int, Tensor], Pending] | None = None

    def add_home() -> None:
        """The gradients that other ranks found for our keys."""
        if home is not None:
            home[1].wait()
            for rank in sorted(home[0]):
                ranges = journey.needed(rank, journey.rank)
                add_blocks(journey.unpacked(ranges, home[0][rank]))

    def add_blocks(blocks: list[Block]) -> None:
        for block in blocks:
            (at,) = local_slices(held, [block.keys])
            totals[1][:, :, at] += block.k
            totals[2][:, :, at] += block.v

    for shifts, blocks in zip(journey.steps, journey.blocks()):
        gradients = []
        for block in blocks:
            found = Block(block.keys, *(torch.zeros_like(x, dtype=torch.float32) for x in block[1:]))
            for segment, keys, values in calls(journey.mask, held, block):
                (at,) = local_slices(held, [segment.queries])
                call = arguments(c, segment, q[:, :, at], keys, values, sinks, key_begin, key_end)
                upstream = [None if x is None else x[..., at, :] for x in (d_output,)]
                upstream += [None if x is None else x[..., at].contiguous() for x in (d_statistics,)]
                dq, dk, dv, *_ = OPS.attention_backward(
                    *call, wanted, output[:, :, at], statistics[..., at].contiguous(), *upstream,
                    False, False, False,
                )  # fmt: skip
                totals[0][:, :, at] += dq
                there = slice(segment.keys[0] - block.keys[0], segment.keys[1] - block.keys[0])
                found.k[:, :, there] += dk
                found.v[:, :, there] += dv
            gradients.append(Block(block.keys, found.k.to(k.dtype), found.v.to(v.dtype)))
        if 0 in shifts:
            add_blocks(cut(gradients, held))
        add_home()
        home = journey.start_return(shifts, gradients)
    add_home()
    return (*(total.to(q.dtype) for total in totals), sink_gradient(sinks, output, statistics, d_output))


@travelling_attention_backward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    gradients = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v)]
    return (*gradients, q.new_empty(0 if sinks is None else sinks.shape[0], dtype=torch.float32))


def _save(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[2])
    ctx.save_for_backward(*inputs[:7], output[0], output[1])
    ctx.names = inputs[7:]


def _gradients(ctx: Any, d_output: Tensor | None, d_statistics: Tensor | None, _: Any) -> tuple:
    *tensors, output, statistics = ctx.saved_tensors
    if d_output is None and d_statistics is None:
        return (None,) * 9
    dq, dk, dv, d_sinks = travelling_attention_backward(
        *tensors, *ctx.names, output, statistics, d_output, d_statistics
    )
    return dq, dk, dv, d_sinks if ctx.needs_input_grad[3] else None, *(None,) * 5


travelling_attention.register_autograd(_gradients, setup_context=_save)
travelling_attention_backward.register_autograd(no_second_order)
