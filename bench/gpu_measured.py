"""Numbers of a compiled kernel without a device: instructions for each score, and concurrent programs."""

from __future__ import annotations

from typing import NamedTuple

from gpu_compiling import Compiled, Loop


def programs_of(registers: int, shared: int, warps: int) -> int:
    """Number of programs that a multiprocessor of sm_90 runs at once.

    It has 65536 registers, which warps get by the 256, and 64 warps. Each program takes 1 KB more than it requests of its 227 KB of shared memory.
    """
    by_registers = 65536 // (-(-registers * 32 // 256) * 256 * warps)
    return max(1, min(by_registers, (227 << 10) // (shared + 1024), 64 // warps))


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
        return programs_of(self.kernel.registers, self.kernel.shared, self.warps)
