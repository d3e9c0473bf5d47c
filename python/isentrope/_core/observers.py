"""Passes running calls and their statistics to observers, which do not change results.

Listeners hear every eager call. Compiled code and torch.func have one observer alone, that of the module whose forward pass
is running: `models.maxima` sets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from isentrope._core.call import Call
from isentrope._core.library import CHECKED
from isentrope.statistics import Statistics, unpack, wanted_bits

_T = TypeVar("_T")


class Group(Generic[_T]):
    """Observers of one kind of call, in the order in which they came."""

    def __init__(self) -> None:
        self.members: tuple[_T, ...] = ()

    @contextmanager
    def having(self, member: _T) -> Iterator[None]:
        self.members = (*self.members, member)
        try:
            yield
        finally:
            self.members = tuple(x for x in self.members if x is not member)


class Listener(NamedTuple):
    names: tuple[str, ...]
    hear: Callable[[Call, Statistics], None]
    documents: bool = False  # whether it takes the calls of packed documents, one for each, for one


listeners: Group[Listener] = Group()


def refuse_listeners(function: str) -> None:
    """Raises ValueError if a call over ranks has listeners, which would take its rows, keys and heads for those of the module."""
    if not torch.compiler.is_compiling() and listeners.members:
        raise ValueError(
            f'[isentrope.distributed] {function} must be called outside of Monitor.watch() and hf.record("received"), which read '
            "calls of one process alone; got a call inside"
        )


class _Running:
    # Set for the instance, because compiled code has a guard on which attributes an instance has.
    def __init__(self) -> None:
        self.maxima: Any = None
        """`Maxima` of the module whose forward function is running; None if no maxima are collected."""
        self.outer: tuple | None = None
        """(maxima, outer) of the module that called it; None outside of every watched module."""


running = _Running()  # an attribute instead of a global variable, because compilers trace assignments to it

_OF_MAXIMA = ("max_logit",)
_BITS_OF_MAXIMA = wanted_bits(_OF_MAXIMA)


def wanted(eager: bool) -> int:
    """Returns the bits of the statistics that observers need. eager: whether listeners hear the call."""
    bits = 0 if running.maxima is None else _BITS_OF_MAXIMA
    for listener in listeners.members if eager else ():
        bits |= wanted_bits(listener.names)
    return bits


def hear(
    eager: bool, call: Call, bits: int, statistics: Sequence[Tensor] | Tensor, support: Tensor, first_head: int | None = None
) -> None:
    """Passes the statistics of a call for `bits` on, without gradients. first_head: as in `attend`."""
    if running.maxima is not None:
        running.maxima.hear(call, unpack(_OF_MAXIMA, bits, statistics, support).max_logit, first_head)
    for names, listener, _ in listeners.members if eager else ():
        heard = unpack(names, bits, statistics, support)
        listener(call, Statistics(*(x if x is None else x.detach() for x in heard)))


@torch.no_grad()
def received(call: Call, lse: Tensor) -> Tensor:
    """Returns the weights that the keys of a call receive, float32 [batch, heads, keys]."""
    return CHECKED.received(*call, lse, None)
