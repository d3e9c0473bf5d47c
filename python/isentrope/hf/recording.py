"""Records the statistics of every attention call while a model runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from isentrope._core.observers import Group, Listener, listeners, received
from isentrope.statistics import Statistics, StatisticNames


class _Pair(NamedTuple):
    module: nn.Module
    statistics: Statistics


class Record(_Pair):
    """One attention call: its module, and the statistics that `record` was asked for. Unpacks into these two."""

    received: Tensor | None = None
    """Weight that each key receives, float32 [batch, heads, keys]; None unless `record` was asked for "received"."""


class _Observer(NamedTuple):
    names: tuple[str, ...]
    receives: bool
    see: Callable[[Record, Tensor, Tensor, dict[str, Any]], None]


_observers: Group[_Observer] = Group()


def observed(
    module: nn.Module, query: Tensor, key: Tensor, options: dict[str, Any], attend: Callable[[StatisticNames], Any]
) -> tuple[Tensor, None]:
    """Calls `attend` for transformers, and shows its statistics to the observers, if any."""
    observers = () if torch.compiler.is_compiling() else _observers.members
    if not observers:
        return attend(False).transpose(1, 2), None
    weights: list[Tensor] = []
    hear = Listener(("lse",), lambda call, statistics: weights.append(received(call, statistics.lse)), True)
    with listeners.having(hear) if any(observer.receives for observer in observers) else nullcontext():
        result, statistics = attend(tuple(dict.fromkeys(name for observer in observers for name in observer.names)))
    if not weights and any(observer.receives for observer in observers):
        raise ValueError('[record] "received" must be asked for outside of torch.func, where calls are not seen; got a call inside')
    for names, receives, see in observers:
        asked = {name: getattr(statistics, name) for name in names}
        record = Record(module, Statistics(**asked))
        if receives:  # one call, or one for each packed document of each sequence of the batch
            record.received = torch.cat(weights, -1).unflatten(-1, (-1, key.shape[2])).transpose(1, 2).flatten(0, 1)
        see(record, query, key, options)
    return result.transpose(1, 2), None


def observing(see: Callable[[Record, Tensor, Tensor, dict[str, Any]], None], *names: str) -> AbstractContextManager[None]:
    """Calls `see` for every attention in the block, except in compiled models: with its record of the named statistics,
    queries, keys and options (rule, scale, ...)."""
    return _observers.having(_Observer(tuple(name for name in names if name != "received"), "received" in names, see))


@contextmanager
def record(*wanted: str) -> Iterator[list[Record]]:
    """Collects the statistics of every attention call inside the block, except in compiled models.

        with isentrope.hf.record("entropy", "support") as records:
            model(**inputs)

    wanted: names of `Statistics`, and "received" for the weight that each key receives, which takes more than half as
    long as the attention itself.
    """
    records: list[Record] = []
    with observing(lambda record, *_: records.append(record), *wanted):
        yield records
