"""Compiles kernels for a chip without running them, in a separate process with CPU tensors.

Triton's cache on disk keeps them for processes that run them.
"""

from __future__ import annotations

from typing import Any

from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from isentrope.gpu import plan


class _Driver:
    """Functions of a driver that Triton calls before it compiles."""

    def __init__(self, target: GPUTarget) -> None:
        self.target = target

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_instead_of_running(target: GPUTarget, chip: plan.Chip) -> None:
    """Makes launches in this process compile only, for this chip; results are undefined."""
    run = JITFunction.run

    def compiled(self: JITFunction, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        run(self, *args, grid=grid, warmup=True, **options)

    driver.set_active(_Driver(target))
    JITFunction.run = compiled
    plan.chip_of = lambda _: chip  # type: ignore[assignment]
