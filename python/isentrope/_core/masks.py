"""The masks of a call as one value, whose parts are those that the library lists."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import torch
from torch import Tensor

from isentrope._core.library import ARGUMENTS, AXES, DEFAULTS

_NAMES = [argument["name"] for argument in ARGUMENTS if argument["mask"]]


class Masks(namedtuple("Masks", _NAMES, defaults=[DEFAULTS[name] for name in _NAMES])):
    """Which keys each row sees, as the operators take it: include/isentrope/mask.h says what each part means. Those with
    axes are lists, None or tensors of int64, the others numbers."""

    __slots__ = ()

    @classmethod
    def of(cls, call: Any) -> Masks:
        """Those among the arguments of a call."""
        return cls(*(getattr(call, name) for name in cls._fields))

    # Methods: torch 2.10 does not compile what reads a property of a named tuple.
    def lists(self) -> dict[str, Tensor | None]:
        return {name: x for name, x in self._asdict().items() if AXES[name]}

    def numbers(self) -> dict[str, int]:
        return {name: x for name, x in self._asdict().items() if not AXES[name]}

    def on(self, device: torch.device) -> Masks:
        """With lists that lie there. From the CPU they go without a wait."""
        lists = {name: x.to(device, non_blocking=True) for name, x in self.lists().items() if x is not None}
        return self._replace(**lists)

    @property
    def differ_by_batch(self) -> bool:
        """Whether the sequences of a batch may see different keys."""
        return any("batch" in AXES[name] and x is not None for name, x in self._asdict().items())
