"""Numbers of a compiled kernel without a device: instructions for each score, and concurrent programs."""

from __future__ import annotations

from typing import NamedTuple

from isentrope.gpu.plan import programs_of
from src.gpu.compiling import TARGETS, Compiled, Loop


class Measured(NamedTuple):
    """A compiled kernel or one loop of it: its tile, its resources, and the loop of tiles without masked keys."""

    name: str
    dtype: str
    dim: int
    rows: int
    keys: int
    warps: int
    kernel: Compiled
    loop: Loop

    @property
    def a_score(self) -> float:
        return self.loop.instructions * self.warps / (self.rows * self.keys)

    @property
    def a_flop(self) -> float:
        return self.loop.instructions / self.loop.operations

    @property
    def programs(self) -> int:
        return programs_of(TARGETS["sm_90"].chip, self.kernel.registers, self.kernel.shared, self.warps)
