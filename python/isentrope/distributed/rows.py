"""Accumulates results of one rank's rows over blocks of keys."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from isentrope._core.call import Call
from isentrope._core.library import LSE, SUPPORT
from isentrope._core.masks import Masks
from isentrope.distributed.agreement import Configuration
from isentrope.distributed.visibility import Segment
from isentrope.states import AttentionState, merge
from isentrope.statistics import BITS, Statistics, unpack

_MAX_PROBABILITY = BITS["max_probability"]
# Values of a row before its first key.
_NOTHING = {"lse": -torch.inf, "max_logit": -torch.inf, "lambda_": -torch.inf}


def wide(dtype: torch.dtype) -> torch.dtype:
    """Returns the type in which numbers of this one are summed: float32, or float64."""
    return torch.promote_types(dtype, torch.float32)


def call_of_segment(
    c: Configuration, masks: Masks, segment: Segment, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
) -> Call:
    starts = None if segment.documents is None else torch.tensor(segment.documents).to(q.device, non_blocking=True)
    place: dict[str, Any] = {"cu_seqlens_q": starts, "cu_seqlens_k": starts}
    if starts is None:
        place["query_offset"] = segment.queries[0] - segment.origin
        place["key_offset"] = segment.keys[0] - segment.origin
        place["sequence_keys"] = segment.length
    return Call(q, k, v, sinks=sinks, rule=c.rule, soft_cap=c.soft_cap, **masks._replace(**place)._asdict())


def empty_results(q: Tensor, columns: Any, statistics: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns empty results in the operators' layout, row-major. Includes the position of the first key of the block
    with each row's largest key, if max_probability needs a gradient."""
    rows = tuple(q.shape[:3])
    count = (statistics & (SUPPORT - 1)).bit_count()
    return (
        q.new_empty((*rows, columns)),
        q.new_empty((count, *rows), dtype=wide(q.dtype)),
        q.new_empty(rows if statistics & SUPPORT else (0,), dtype=torch.int64),
        q.new_empty(rows if statistics & _MAX_PROBABILITY else (0,), dtype=torch.int64),
    )


class Rows:
    """Output and statistics of the rows of q over the keys added so far, in the wide type."""

    def __init__(self, q: Tensor, columns: int, statistics: int) -> None:
        self.wanted, self.dtype = statistics, q.dtype
        self.names = tuple(name for name, bit in BITS.items() if statistics & bit)
        output, self.shared, self.support, self.largest = empty_results(q, columns, statistics)
        self.output = torch.zeros_like(output, dtype=wide(q.dtype))
        for name, piece in self._statistics_of(self.shared, self.support)._asdict().items():
            if piece is not None:
                piece.fill_(_NOTHING.get(name, 0))
        self.largest.zero_()

    def _statistics_of(self, shared: Tensor, support: Tensor) -> Statistics:
        return unpack(self.names, self.wanted, shared, support)

    def add(self, local_rows: slice, first_key: int, results: tuple[Tensor, Tensor, Tensor]) -> None:
        """Merges the operator's results for the rows `at` over new keys, from position `first_key` on."""
        here, new = self._statistics_of(self.shared[..., local_rows], self.support[..., local_rows]), self._statistics_of(*results[1:])
        if self.wanted & _MAX_PROBABILITY:
            known, most = self.largest[:, :, local_rows], here.max_logit  # the first of equal logits is the largest
            larger = (new.max_logit > most) | ((new.max_logit == most) & (known > first_key))
            known.masked_fill_(larger, first_key)
        state = merge(AttentionState(self.output[:, :, local_rows], here), AttentionState(results[0], new))
        self.output[:, :, local_rows] = state.output
        for piece, merged in zip(here, state.statistics):
            if piece is not None:
                piece.copy_(merged)

    def results(self, sinks: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns the results. Sinks are no keys of any block, so they take their weight here."""
        output = self.output
        if sinks is not None:
            lse = self.shared[0]
            output = output * torch.sigmoid(lse - sinks[:, None])[..., None]
        return output.to(self.dtype), self.shared, self.support, self.largest


class Upstream(NamedTuple):
    """Rows' data for a backward pass besides the call, in the order of the operator's arguments."""

    wanted: int
    output: Tensor
    statistics: Tensor
    d_output: Tensor | None
    d_statistics: Tensor | None
    largest: Tensor

    def of_rows(self, local_rows: slice, first_key: int) -> tuple[int, Tensor, Tensor, Tensor | None, Tensor | None]:
        """Returns the arguments for a block of keys from position `first_key` on."""
        statistics = self.statistics[..., local_rows].contiguous()
        d_statistics = None if self.d_statistics is None else self.d_statistics[..., local_rows].contiguous()
        if d_statistics is not None and self.wanted & _MAX_PROBABILITY:
            d_statistics = self._of_largest(local_rows, first_key, statistics, d_statistics)
        d_output = None if self.d_output is None else self.d_output[:, :, local_rows]
        return self.wanted, self.output[:, :, local_rows], statistics, d_output, d_statistics

    def _of_largest(self, local_rows: slice, first_key: int, statistics: Tensor, d_statistics: Tensor) -> Tensor:
        """Returns d_max_probability for a block. Rows whose largest key is elsewhere get only the part of all keys,
        within d_lse. Blocks cannot tell which of two differently rounded logits is larger."""
        place = (self.wanted & (_MAX_PROBABILITY - 1)).bit_count()
        elsewhere = self.largest[:, :, local_rows] != first_key
        adjusted = d_statistics.clone()
        adjusted[0] -= torch.where(elsewhere, statistics[place] * d_statistics[place], 0)
        adjusted[place].masked_fill_(elsewhere, 0)
        return adjusted


def upstream_of_blocks(
    sinks: Tensor | None, wanted: int, output: Tensor, statistics: Tensor, d_output: Tensor | None,
    d_statistics: Tensor | None, largest: Tensor,
) -> Upstream:  # fmt: skip
    """Returns the upstream gradients in the form for every block. A row's gradient depends on the output only through w
    do.output, which is subtracted from d_lse once, here. For the blocks the output is then 0."""
    nothing = output.new_zeros(()).expand(output.shape)
    if d_output is None:
        return Upstream(wanted, nothing, statistics, None, d_statistics, largest)
    if d_statistics is None:
        wanted, statistics = LSE, statistics[:1]
        d_statistics = torch.zeros_like(statistics)
    products = (d_output.float() * output).sum(-1)
    if sinks is not None:
        products *= torch.sigmoid(statistics[0] - sinks.float()[:, None])
    d_statistics = torch.cat([d_statistics[:1] - products, d_statistics[1:]])
    return Upstream(wanted, nothing, statistics, d_output, d_statistics, largest)


def sink_gradient(sinks: Tensor | None, output: Tensor, statistics: Tensor, d_output: Tensor | None) -> Tensor:
    """Returns the gradient of the sinks, -(1 - w) do.output with w = sigmoid(lse - sink); empty without sinks."""
    if sinks is None or d_output is None:
        return output.new_zeros(0 if sinks is None else sinks.shape[0], dtype=torch.float32)
    lse = statistics[0]
    share = torch.sigmoid(sinks.float()[:, None] - lse)
    products = share * (d_output.float() * output.float()).sum(-1)
    return -torch.where(lse == -torch.inf, 0, products).sum((0, 2))
