"""Compares the arguments that all ranks of a call must share, once for each set of arguments.

The comparison uses the store in which the group's ranks found each other. It needs no device, and works while a
compiler traces. Rank 0 reads the others' entries and publishes the verdict.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from importlib import metadata
from itertools import count
from threading import Thread
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.distributed import PrefixStore, ProcessGroup, Store

from isentrope.distributed.exchange import failure, meet, resolved, tag_of
from isentrope.distributed.layout import pieces, rows_of

COMPARISON = "as arguments are compared"


class Configuration(NamedTuple):
    """The arguments of `attention` that are the same on every rank, and the shapes of the tensors."""

    sequence_length: int
    method: str
    layout: str
    dtype: str
    batch: int
    heads: int
    kv_heads: int
    dim: int
    value_dim: int
    rule: str
    masks: dict[str, int]
    """The numbers among the parts of the masks."""
    soft_cap: float
    statistics: int
    given: tuple[str, ...]
    """The names of the optional tensors."""
    version: str

    def text(self) -> str:
        return json.dumps(self._asdict())

    @property
    def tag(self) -> int:
        return tag_of(self.text())


@lru_cache(maxsize=256)
def parsed(text: str) -> Configuration:
    fields = json.loads(text)
    masks = {name: int(number) for name, number in fields["masks"].items()}
    return Configuration(**fields | {"masks": masks, "given": tuple(fields["given"])})


@lru_cache
def version() -> str:
    try:
        return metadata.version("isentrope")
    except metadata.PackageNotFoundError:  # a build tree
        return "of a build tree"


# The configurations that the ranks of a group have compared, and the number of comparisons.
_agreed: WeakKeyDictionary[ProcessGroup, tuple[set[str], Iterator[int]]] = WeakKeyDictionary()


@torch.compiler.assume_constant_result
def agreed(name: str, device: torch.device, rows: int, keys: int, sequence_length: int | None, *fields: Any) -> str:
    """Returns the configuration of these fields as text, after all ranks of the group have agreed on it. Raises
    ValueError on every rank if one has a different configuration, and RuntimeError if one does not make the call."""
    group = resolved(name)
    if keys != rows:
        raise ValueError(f"[isentrope.distributed] k must have the {rows} rows of q; got {keys}")
    length = rows * group.size() if sequence_length is None else sequence_length
    configuration = Configuration(*(length, *fields, version()))
    text = configuration.text()
    part = rows_of(pieces(length, group.size(), configuration.layout)[group.rank()])
    if part != rows:
        text = (  # sent instead of the configuration, so that no other rank waits for this one's keys
            f"[isentrope.distributed] q must have the {part} rows of {length} that rank {group.rank()} of {group.size()} "
            f"holds; got {rows}"
        )
    known, numbers = _agreed.setdefault(group, (set(), count(1)))
    if text not in known:
        number = next(numbers)  # counted even if this rank then fails, as the others count it
        _compare(group, time_limit(group, device), number, text)
        if not known:
            meet(group, device, COMPARISON)
        known.add(text)
    return text


def time_limit(group: ProcessGroup, device: torch.device) -> timedelta:
    return group._get_backend(device).options._timeout


def _compare(group: ProcessGroup, limit: timedelta, number: int, text: str) -> None:
    """Compares in a separate thread, because torch waits without a limit if the process with the store is stopped."""
    outcome: list[Exception | None] = []

    def compare() -> None:
        try:
            _compare_in_store(group, limit, number, text)
            outcome.append(None)
        except Exception as error:
            outcome.append(error)

    thread = Thread(target=compare, daemon=True)
    thread.start()
    # Rank 0 waits twice: for the others' entries, and until they have read the verdict.
    thread.join(limit.total_seconds() * (2 if group.rank() == 0 else 1) + 1)
    if not outcome:
        raise failure(group, [0], COMPARISON, "the store does not answer")
    if outcome[0] is not None:
        raise outcome[0]


def _compare_in_store(group: ProcessGroup, limit: timedelta, number: int, text: str) -> None:
    store = PrefixStore(f"isentrope/{number}", group.get_group_store())
    others = range(1, group.size())
    if group.rank() == 0:
        verdict = _verdict(group, store, limit, text)
        store.set("verdict", verdict)
        if verdict:
            with suppress(RuntimeError):  # the store may end with this process, which is about to fail
                store.wait([f"{rank} has heard" for rank in others], limit)
    else:
        store.set(str(group.rank()), text)
        verdict = _read(group, store, "verdict", 0, limit)
        if verdict:
            store.set(f"{group.rank()} has heard", "")
    if verdict:
        raise (RuntimeError if verdict.startswith(_ABSENT) else ValueError)(verdict.removeprefix(_ABSENT))


_ABSENT = "absent: "  # prefix of a verdict about a missing rank


def _verdict(group: ProcessGroup, store: Store, limit: timedelta, text: str) -> str:
    """Returns a description of the disagreement; "" if there is none."""
    end = time.monotonic() + limit.total_seconds()
    complaint = text if text.startswith("[") else ""
    for rank in range(1, group.size()):
        left = timedelta(seconds=max(end - time.monotonic(), 0.001))
        try:
            other = _read(group, store, str(rank), rank, left)
        except RuntimeError as error:
            store.set("verdict", _ABSENT + str(error))
            raise
        if not complaint and other != text:
            complaint = other if other.startswith("[") else difference(text, other, rank)
    return complaint


def _read(group: ProcessGroup, store: Store, key: str, writer: int, limit: timedelta) -> str:
    try:
        store.wait([key], limit)
        return store.get(key).decode()
    except RuntimeError as error:
        raise failure(group, [writer], COMPARISON, error) from error


def difference(text: str, other: str, rank: int) -> str:
    mine, theirs = (fields | fields["masks"] | {"masks": None} for fields in map(json.loads, (text, other)))
    differences = [f"{key} {mine[key]!r} on rank 0 and {theirs[key]!r} on rank {rank}"
             for key in mine if mine[key] != theirs[key]]  # fmt: skip
    return f"[isentrope.distributed] all ranks must call with the same arguments; got {', '.join(differences)}"
