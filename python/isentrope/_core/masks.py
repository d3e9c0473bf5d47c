"""Masks of a call as one value with the parts that the library lists."""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isentrope._core.library import ARGUMENTS, AXES, DEFAULTS

_NAMES = [argument["name"] for argument in ARGUMENTS if argument["mask"]]
# Written out, because torch cannot compile attrgetter, and a loop with getattr makes 18 calls.
_parts = eval(f"lambda call: ({', '.join(f'call.{name}' for name in _NAMES)},)")


if TYPE_CHECKING:
    from isentrope._core.libraries import Listed as _Parts
else:
    _Parts = namedtuple("Masks", _NAMES, defaults=[DEFAULTS[name] for name in _NAMES])


class Masks(_Parts):
    """Keys that each row sees, in the operators' form; include/isentrope/mask.h defines each part. Parts with axes are
    lists: None or int64 tensors. The others are numbers."""

    __slots__ = ()

    @classmethod
    def of(cls, call: Any) -> Masks:
        return cls(*_parts(call))

    # Methods, because torch 2.10 cannot compile properties of named tuples.
    def lists(self) -> dict[str, Tensor | None]:
        return {name: x for name, x in self._asdict().items() if AXES[name]}

    def numbers(self) -> dict[str, int]:
        return {name: x for name, x in self._asdict().items() if not AXES[name]}

    def on(self, device: torch.device) -> Masks:
        """Returns the masks with lists on that device. Copies from the CPU are asynchronous."""
        lists = {name: x.to(device, non_blocking=True) for name, x in self.lists().items() if x is not None}
        return self._replace(**lists)
