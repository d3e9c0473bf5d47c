"""Compiles kernels for a chip without running them, as calls on that chip would: in a process of its own, with CPU tensors.

Triton's cache on disk keeps them, and a process that runs them finds them there.
"""

from __future__ import annotations

from typing import Any

from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from isentrope.gpu import plan


class _Driver:
    """What Triton asks of a driver before it compiles."""

    def __init__(self, target: GPUTarget) -> None:
        self.target = target

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_instead_of_running(target: GPUTarget, chip: plan.Chip) -> None:
    """From now on launches in this process only compile, for this chip, and results hold anything."""
    run = JITFunction.run

    def compiled(self: JITFunction, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        return run(self, *args, grid=grid, warmup=True, **options)

    driver.set_active(_Driver(target))
    JITFunction.run = compiled
    plan.chip_of = lambda _: chip
