"""The table of docs/contributors/gpu.md."""

from collections.abc import Iterator

import torch
from gpu_compiling import TARGETS, Compiled, Launch
from variants import Variant

# sm_86, 89 and 120 take the tiles of sm_80.
CHIPS = ("sm_80", "sm_90", "sm_100", "gfx942")
CALLS = [
    (chip, dim, backward)
    for chip in CHIPS for dim in ((64, 128) if chip == "sm_90" else (128,)) for backward in (False, True)
]  # fmt: skip
KERNELS = ("forward", "query_gradient", "key_gradient")


def rows(chip: str, dim: int, backward: bool) -> Iterator[str]:
    calls = (Variant(torch.bfloat16, dim, statistics, backward=backward) for statistics in (True, False))
    full, bare = ([one for one in call.on(TARGETS[chip]) if one[0].name in KERNELS] for call in calls)
    for one, other in zip(full, bare, strict=True):
        shown = (a if a == b else f"{a}, {b}" for a, b in zip(cells(*one), cells(*other)))
        yield f"| {chip} | {dim} | {one[0].name.replace('_', ' ')} | {' | '.join(shown)} |"


def cells(launch: Launch, kernel: Compiled) -> list[str]:
    shape, options = dict(launch.constants)["SHAPE"], dict(launch.options)
    products = " ".join(f"{count} {name}" for name, count in kernel.products.items())
    numbers = (kernel.registers, kernel.spilled, kernel.shared, kernel.instructions)
    return [f"{shape.ROWS} x {shape.KEYS}, {options['num_warps']} warps", *map(str, numbers), products]


def lines() -> Iterator[str]:
    yield "| chip | d | kernel | queries x keys | registers | spilled | shared | instructions | products |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for chip, dim, backward in CALLS:
        yield from rows(chip, dim, backward)
