"""Passes the statistics of running calls to one listener, which does not change their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from isentrope.statistics import Statistics, wanted_bits


class Listener(NamedTuple):
    names: tuple[str, ...]
    bits: int
    hear: Callable[[Statistics], None]


listener: Listener | None = None


@contextmanager
def listening(names: tuple[str, ...], hear: Callable[[Statistics], None]) -> Iterator[None]:
    """Calls `hear` with the named statistics, without gradients, of every call inside the block. Calls in compiled code
    and under torch.func are not heard. Raises RuntimeError inside another `listening` block."""
    global listener
    if listener is not None:
        raise RuntimeError("[listening] there must be one listener at a time; got a second one: leave the first context")
    listener = Listener(names, wanted_bits(names), hear)
    try:
        yield
    finally:
        listener = None
