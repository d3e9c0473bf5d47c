"""The rows of one rank, which gather what each block of keys says of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isentrope._core.call import Call
from isentrope._core.library import SUPPORT
from isentrope._core.masks import Masks
from isentrope.distributed.agreement import Configuration
from isentrope.distributed.visibility import Segment
from isentrope.states import AttentionState, merge
from isentrope.statistics import BITS, Statistics, unpack

# Of a row that has seen no key yet.
_NOTHING = {"lse": -torch.inf, "max_logit": -torch.inf, "lambda_": -torch.inf}


def call_of_segment(
    c: Configuration, masks: Masks, segment: Segment, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
) -> Call:
    """What the operators take for one segment."""
    starts = None if segment.documents is None else torch.tensor(segment.documents, device=q.device)
    place: dict[str, Any] = {"cu_seqlens_q": starts, "cu_seqlens_k": starts}
    if starts is None:
        place["query_offset"] = segment.queries[0] - segment.origin
        place["key_offset"] = segment.keys[0] - segment.origin
        place["sequence_keys"] = segment.length
    return Call(q, k, v, sinks=sinks, rule=c.rule, soft_cap=c.soft_cap, **masks._replace(**place)._asdict())


def empty_results(q: Tensor, columns: Any, statistics: int) -> tuple[Tensor, Tensor, Tensor]:
    """As the operators lay out their results, row-major."""
    rows = tuple(q.shape[:3])
    count = (statistics & (SUPPORT - 1)).bit_count()
    return (
        q.new_empty((*rows, columns)),
        q.new_empty((count, *rows), dtype=torch.float32),
        q.new_empty(rows if statistics & SUPPORT else (0,), dtype=torch.int64),
    )


class Rows:
    """Output and statistics of the rows of q over the keys that were added, in float32."""

    def __init__(self, q: Tensor, columns: int, statistics: int) -> None:
        self.wanted, self.dtype = statistics, q.dtype
        self.names = tuple(name for name, bit in BITS.items() if statistics & bit)
        output, self.shared, self.support = empty_results(q, columns, statistics)
        self.output = torch.zeros_like(output, dtype=torch.float32)
        for name, piece in self._named(self.shared, self.support)._asdict().items():
            if piece is not None:
                piece.fill_(_NOTHING.get(name, 0))

    def _named(self, shared: Tensor, support: Tensor) -> Statistics:
        return unpack(self.names, self.wanted, shared, support)

    def add(self, at: slice, results: tuple[Tensor, Tensor, Tensor]) -> None:
        """What the operator found for the rows `at` over keys that are new to them."""
        here = self._named(self.shared[..., at], self.support[..., at])
        state = merge(
            AttentionState(self.output[:, :, at], here), AttentionState(results[0], self._named(*results[1:]))
        )
        self.output[:, :, at] = state.output
        for piece, merged in zip(here, state.statistics):
            if piece is not None:
                piece.copy_(merged)

    def results(self, sinks: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """A sink is no key of any block: it takes its weight at the end."""
        output = self.output
        if sinks is not None:
            lse = self.shared[0]
            output = output * torch.sigmoid(lse - sinks.float()[:, None])[..., None]
        return output.to(self.dtype), self.shared, self.support


def sink_gradient(sinks: Tensor | None, output: Tensor, statistics: Tensor, d_output: Tensor | None) -> Tensor:
    """[heads], or nothing where there are no sinks: output = w o, w = sigmoid(lse - sink), hence -(1 - w) do.output."""
    if sinks is None or d_output is None:
        return output.new_zeros(0 if sinks is None else sinks.shape[0], dtype=torch.float32)
    lse = statistics[0]
    share = torch.sigmoid(sinks.float()[:, None] - lse)
    products = share * (d_output.float() * output.float()).sum(-1)
    return -torch.where(lse == -torch.inf, 0, products).sum((0, 2))
