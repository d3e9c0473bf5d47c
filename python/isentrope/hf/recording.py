"""Records the statistics of every attention call while a model runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from isentrope._core.receiving import receiving
from isentrope.statistics import Statistics, StatisticNames


class _Pair(NamedTuple):
    module: nn.Module
    statistics: Statistics


class Record(_Pair):
    """One attention call: its module, and the statistics that `record` was asked for. Unpacks into these two."""

    received: Tensor | None = None
    """Weight that each key receives, float32 [batch, heads, keys]; None unless `record` was asked for "received"."""


class _Recording(NamedTuple):
    wanted: tuple[str, ...]
    receives: bool
    records: list[Record]


_recording: _Recording | None = None
Observer = Callable[[nn.Module, Tensor, Tensor, dict[str, Any]], None]
_observer: Observer | None = None


def observed(module: nn.Module, query: Tensor, key: Tensor, options: dict[str, Any]) -> None:
    """Passes a call to the observer, if any."""
    if _observer is not None and not torch.compiler.is_compiling():
        _observer(module, query, key, options)


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Passes module, queries, keys and options (rule, scale, ...) of every attention in the block to `observer`.

    Raises RuntimeError inside another `observing` block.
    """
    global _observer
    if _observer is not None:
        raise RuntimeError("[observing] there must be one observer at a time; got a second one: leave the first context")
    _observer = observer
    try:
        yield
    finally:
        _observer = None


def with_recording(module: nn.Module, attend: Callable[[StatisticNames], Any]) -> tuple[Tensor, None]:
    """Calls `attend` for transformers, and stores its statistics in the current recording."""
    recording = None if torch.compiler.is_compiling() else _recording
    if not recording:
        return attend(False).transpose(1, 2), None
    weights: list[Tensor] = []
    with receiving(weights.append) if recording.receives else nullcontext():
        result, statistics = attend(recording.wanted)
    record = Record(module, statistics)
    record.received = weights[0] if weights else None
    recording.records.append(record)
    return result.transpose(1, 2), None


@contextmanager
def record(*wanted: str) -> Iterator[list[Record]]:
    """Collects the statistics of every attention call inside the block, except in compiled models.

        with isentrope.hf.record("entropy", "support") as records:
            model(**inputs)

    wanted: names of `Statistics`, and "received" for the weight that each key receives, which takes more than half as
    long as the attention itself.

    Raises RuntimeError inside another `record` block.
    """
    global _recording
    if _recording is not None:
        raise RuntimeError("[record] there must be one recording at a time; got a second one: leave the first context")
    _recording = _Recording(tuple(name for name in wanted if name != "received"), "received" in wanted, [])
    try:
        yield _recording.records
    finally:
        _recording = None
