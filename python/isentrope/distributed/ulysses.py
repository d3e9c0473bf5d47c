"""Method `all_to_all` (Ulysses): each rank computes some heads over the whole sequence, and returns the rows.

One exchange brings queries, keys and values, a second returns the output, and a third the statistics, if any. In
between is a plain call with the operator's own gradients.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from isentrope._core.attend import attend
from isentrope._core.call import Call
from isentrope._core.library import CHECKED
from isentrope._core.masks import Masks
from isentrope.distributed.agreement import Configuration, parsed
from isentrope.distributed.exchange import exchange as exchange_values
from isentrope.distributed.exchange import FORWARD, resolved
from isentrope.distributed.layout import Range, local_slices, pieces, rows_of
from isentrope.statistics import _DETACHED, Statistics


def heads_of_ranks(heads: int, kv_heads: int, ranks: int) -> list[tuple[Range, Range]]:
    """Returns each rank's query heads and the key heads that they read. Raises ValueError if they cannot be divided."""
    if heads % ranks or (kv_heads % ranks and ranks % kv_heads):
        raise ValueError(
            f'[isentrope.distributed] method="all_to_all" must have a multiple of the {ranks} ranks as heads, and a '
            f'multiple or divisor of them as key heads; got {heads} and {kv_heads}: use method="ring"'
        )
    each, group = heads // ranks, max(heads // max(kv_heads, 1), 1)
    ranges = [(rank * each, (rank + 1) * each) for rank in range(ranks)]
    return [((begin, end), (begin // group, -(-end // group))) for begin, end in ranges]


class HeadExchange(NamedTuple):
    """Transposition between ranks: rows on one side, heads on the other."""

    configuration: Configuration
    name: str
    me: int
    heads: list[tuple[Range, Range]]
    """Query heads of each rank and the key heads that they read."""
    pieces_by_rank: list[list[Range]]
    order: list[tuple[int, Range]]
    """(rank, range of its rows) of each piece, in the order of the sequence."""
    rule: str
    """Rule of the heads that this rank computes."""

    def to_heads(self, tensors: list[Tensor], key_heads: list[bool]) -> list[Tensor]:
        """Converts [batch, heads, this rank's rows, columns] to [batch, this rank's heads, all rows, columns]."""
        outgoing = [[x[:, slice(*self.heads[to][int(of_keys)])] for x, of_keys in zip(tensors, key_heads)]
                    for to in range(len(self.pieces_by_rank))]  # fmt: skip
        shapes = [[(*x.shape[:2], rows_of(self.pieces_by_rank[sender]), x.shape[3]) for x in outgoing[self.me]]
                  for sender in range(len(self.pieces_by_rank))]  # fmt: skip
        incoming = self._exchange(outgoing, shapes)
        return [
            torch.cat([incoming[rank][index][:, :, begin:end] for rank, (begin, end) in self.order] or [incoming[0][index]], 2)
            for index in range(len(tensors))
        ]

    def to_rows(self, x: Tensor) -> Tensor:
        """Converts [batch, this rank's heads, all rows, columns] to [batch, heads, this rank's rows, columns]."""
        # A rank without rows takes part as well, also in the backward pass.
        rows = [ranges or [(0, 0)] for ranges in self.pieces_by_rank]
        outgoing = [[x[:, :, begin:end] for begin, end in ranges] for ranges in rows]
        shapes = [[(*x.shape[:2], end - begin, x.shape[3]) for begin, end in rows[self.me]]] * len(rows)
        return torch.cat([torch.cat(parts, 2) for parts in self._exchange(outgoing, shapes)], 1)

    def _exchange(self, outgoing: list[list[Tensor]], shapes: list[list[tuple]]) -> list[list[Tensor]]:
        """Exchanges tensors; shapes are those to be received from each rank."""
        sends = [sum(x.numel() for x in to) for to in outgoing]
        sizes = [[prod(shape) for shape in sender] for sender in shapes]
        values = torch.cat([x.reshape(-1) for to in outgoing for x in to])
        received = exchange_values(values, sends, [sum(of) for of in sizes], self.configuration.tag, FORWARD, self.name)
        parts = iter(received.split([size for of in sizes for size in of]))
        return [[next(parts).view(shape) for shape in sender] for sender in shapes]


@torch.compiler.assume_constant_result
def head_exchange(text: str, name: str) -> HeadExchange:
    c, group = parsed(text), resolved(name)
    heads = heads_of_ranks(c.heads, c.kv_heads, group.size())
    pieces_by_rank = pieces(c.sequence_length, group.size(), c.layout)
    places = [
        (range_, rank, (local.start, local.stop))
        for rank, ranges in enumerate(pieces_by_rank)
        for range_, local in zip(ranges, local_slices(ranges, ranges))
    ]
    order = [(rank, rows) for _, rank, rows in sorted(places)]
    (begin, end), _ = heads[group.rank()]
    # The operator refuses a rule for another number of heads.
    has_heads = CHECKED.rule_heads(c.rule) == c.heads
    rule = CHECKED.rule_of_heads(c.rule, begin, end - begin) if has_heads else c.rule
    return HeadExchange(c, name, group.rank(), heads, pieces_by_rank, order, rule)


def attention_by_heads(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, masks: Masks, text: str, name: str,
    names: tuple[str, ...] | None,
) -> tuple[Tensor, Statistics | None]:  # fmt: skip
    """Returns the output and the statistics of these names."""
    exchange = head_exchange(text, name)
    mine = slice(*exchange.heads[exchange.me][0])
    queries, keys, values = exchange.to_heads([q, k, v], [False, True, True])
    call = Call(
        queries, keys, values, sinks=None if sinks is None else sinks[mine], rule=exchange.rule,
        soft_cap=exchange.configuration.soft_cap, **masks.on(q.device)._asdict(),
    )  # fmt: skip
    if names is None:
        return exchange.to_rows(attend(call, False, mine.start)), None
    output, statistics = attend(call, names, mine.start)
    return exchange.to_rows(output), _statistics_of_rows(exchange, statistics)


def _statistics_of_rows(exchange: HeadExchange, statistics: Statistics) -> Statistics:
    by_name = {}
    floats = {name: x for name, x in statistics._asdict().items() if x is not None and name != "support"}
    if floats:
        columns = exchange.to_rows(torch.stack(list(floats.values()), -1))
        for name, column in zip(floats, columns.unbind(-1)):
            by_name[name] = column.detach() if name in _DETACHED else column
    if statistics.support is not None:
        by_name["support"] = exchange.to_rows(statistics.support[..., None]).squeeze(-1)
    return Statistics(**by_name)
