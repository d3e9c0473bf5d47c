"""The way `all_to_all` (Ulysses): each rank takes some heads over the whole sequence, and gives the rows back.

One exchange brings queries, keys and values, a second takes the output home and a third the statistics, where there are
any. In between there is a plain call, whose gradients are the operator's own.
"""

from __future__ import annotations

import json
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from isentrope._core.attend import attend
from isentrope._core.call import call_of
from isentrope.distributed.agreement import Configuration, parsed
from isentrope.distributed.exchange import exchange, resolved
from isentrope.distributed.layout import Range, local_slices, pieces, rows_of
from isentrope.distributed.rows import Optional
from isentrope.rules import ScaleRule
from isentrope.statistics import _DETACHED, Statistics


def heads_of_ranks(heads: int, kv_heads: int, ranks: int) -> list[tuple[Range, Range]]:
    """Of each rank, its query heads and the key heads that they read. ValueError when they cannot be dealt out."""
    if heads % ranks or (kv_heads % ranks and ranks % kv_heads):
        raise ValueError(
            f'[isentrope.distributed] method="all_to_all" must have heads to deal out evenly over {ranks} ranks, and '
            f"heads of keys that divide the ranks or that they divide; got {heads} and {kv_heads}"
        )
    each, group = heads // ranks, max(heads // max(kv_heads, 1), 1)
    dealt = [(rank * each, (rank + 1) * each) for rank in range(ranks)]
    return [((begin, end), (begin // group, -(-end // group))) for begin, end in dealt]


def rule_of_heads(rule: str, heads: int, mine: Range) -> str:
    """The rule with the numbers of some heads alone, where it has one for each of `heads`."""
    if "[" not in rule:
        return rule
    value = json.loads(ScaleRule(rule).to_json())
    for term in value.get("product", [value]):
        if term["rule"] == "per_row":
            if term.get("heads", 1) == 1:
                continue
            width = {"lambda": len(term["lambda"]) // heads}
            term["heads"] = mine[1] - mine[0]
        elif term["rule"] == "table":
            width = {"factor": len(term["n"])}
        else:
            width = {name: 1 for name in term}
        for name, size in width.items():
            numbers = term[name]
            if isinstance(numbers, list) and len(numbers) == heads * size and heads > 1:
                term[name] = numbers[mine[0] * size : mine[1] * size]
    return ScaleRule.from_json(json.dumps(value)).text


class Trade(NamedTuple):
    """What each rank has for each: rows on one side, heads on the other."""

    configuration: Configuration
    name: str
    tag: int
    me: int
    dealt: list[tuple[Range, Range]]
    held: list[list[Range]]
    order: list[tuple[int, Range]]
    """The pieces in the order of the sequence: whose they are, and which of its rows."""
    rule: str
    """Of our heads."""

    def to_heads(self, tensors: list[Tensor], key_heads: list[bool]) -> list[Tensor]:
        """[batch, heads, our rows, columns] to [batch, our heads, all rows, columns]."""
        outgoing = [[x[:, slice(*self.dealt[to][of_keys])] for x, of_keys in zip(tensors, key_heads)]
                    for to in range(len(self.held))]  # fmt: skip
        shapes = [[(*x.shape[:2], rows_of(self.held[sender]), x.shape[3]) for x in outgoing[self.me]]
                  for sender in range(len(self.held))]  # fmt: skip
        incoming = self._traded(outgoing, shapes)
        return [
            torch.cat([incoming[rank][index][:, :, begin:end] for rank, (begin, end) in self.order] or [incoming[0][index]], 2)
            for index in range(len(tensors))
        ]

    def to_rows(self, x: Tensor) -> Tensor:
        """[batch, our heads, all rows, columns] to [batch, heads, our rows, columns]."""
        # A rank without rows takes part all the same, in the backward pass too.
        held = [ranges or [(0, 0)] for ranges in self.held]
        outgoing = [[x[:, :, begin:end] for begin, end in ranges] for ranges in held]
        shapes = [[(*x.shape[:2], end - begin, x.shape[3]) for begin, end in held[self.me]]] * len(held)
        return torch.cat([torch.cat(parts, 2) for parts in self._traded(outgoing, shapes)], 1)

    def _traded(self, outgoing: list[list[Tensor]], shapes: list[list[tuple]]) -> list[list[Tensor]]:
        """What each rank has for us, in these shapes, for what we have for each."""
        sends = [sum(x.numel() for x in to) for to in outgoing]
        sizes = [[prod(shape) for shape in sender] for sender in shapes]
        values = torch.cat([x.reshape(-1) for to in outgoing for x in to])
        received = exchange(values, sends, [sum(of) for of in sizes], self.tag, self.name)
        parts = iter(received.split([size for of in sizes for size in of]))
        return [[next(parts).view(shape) for shape in sender] for sender in shapes]


@torch.compiler.assume_constant_result
def trade(text: str, name: str) -> Trade:
    c, group = parsed(text), resolved(name)
    dealt = heads_of_ranks(c.heads, c.kv_heads, group.size())
    held = pieces(c.sequence_length, group.size(), c.layout)
    places = [
        (range_, rank, (at.start, at.stop))
        for rank, ranges in enumerate(held)
        for range_, at in zip(ranges, local_slices(ranges, ranges))
    ]
    order = [(rank, rows) for _, rank, rows in sorted(places)]
    rule = rule_of_heads(c.rule, c.heads, dealt[group.rank()][0])
    return Trade(c, name, c.tag, group.rank(), dealt, held, order, rule)


def attention_by_heads(
    q: Tensor, k: Tensor, v: Tensor, tensors: Optional, text: str, name: str, names: tuple[str, ...] | None
) -> tuple[Tensor, Statistics | None]:
    """Output and the statistics of these names."""
    dealer = trade(text, name)
    c, mine = dealer.configuration, dealer.dealt[dealer.me][0]
    sinks = None if tensors.sinks is None else tensors.sinks[slice(*mine)]
    queries, keys, values = dealer.to_heads([q, k, v], [False, True, True])
    call = call_of(
        queries, keys, values, sinks=sinks, key_begin=tensors.key_begin, key_end=tensors.key_end,
        cu_seqlens_q=tensors.documents, cu_seqlens_k=tensors.documents, prefix_keys=tensors.prefix_keys,
        chunk_size=c.chunk_size, rule=dealer.rule, soft_cap=c.soft_cap,
        causal="top_left" if c.causal else False, window_size=(c.window_left, c.window_right),
    )  # fmt: skip
    if names is None:
        return dealer.to_rows(attend(call, False)), None
    output, statistics = attend(call, names)
    return dealer.to_rows(output), _statistics_home(dealer, statistics)


def _statistics_home(dealer: Trade, statistics: Statistics) -> Statistics:
    found = {}
    floats = {name: x for name, x in statistics._asdict().items() if x is not None and name != "support"}
    if floats:
        columns = dealer.to_rows(torch.stack(list(floats.values()), -1))
        for name, column in zip(floats, columns.unbind(-1)):
            found[name] = column.detach() if name in _DETACHED else column
    if statistics.support is not None:
        found["support"] = dealer.to_rows(statistics.support[..., None]).squeeze(-1)
    return Statistics(**found)
