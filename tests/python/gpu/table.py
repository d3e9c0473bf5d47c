"""The table of docs/gpu.md."""

from collections.abc import Iterator

import torch
from variants import Variant

from isentrope.gpu.compiling import TARGETS, Compiled

BEGIN, END = "<!-- begin compiled -->", "<!-- end compiled -->"
CALLS = [
    (chip, dim, backward)
    for chip in TARGETS for dim in ((64, 128) if chip == "sm_90" else (128,)) for backward in (False, True)
]  # fmt: skip
KERNELS = ("forward", "query_gradient", "key_gradient")


def cells(kernel: Compiled) -> str:
    products = " ".join(f"{count} {name}" for name, count in kernel.products.items())
    return f"{kernel.registers}, {kernel.shared}, {kernel.instructions}, {products}"


def row(chip: str, dim: int, name: str, tiles: str, bare: Compiled, full: Compiled) -> str:
    return f"| {chip} | {dim} | {name.replace('_', ' ')} | {tiles} | {cells(bare)} | {cells(full)} |"


def rows(chip: str, dim: int, backward: bool) -> Iterator[str]:
    found: dict[str, list] = {}
    for statistics in (False, True):
        for launch, kernel in Variant(torch.bfloat16, dim, statistics, backward=backward).on(TARGETS[chip]):
            if launch.name in KERNELS:
                assert not kernel.spilled, (chip, dim, launch.name, kernel)
                constants = dict(launch.constants)
                tiles = f"{constants['ROWS']} x {constants['KEYS']}, {launch.warps} warps"
                found.setdefault(launch.name, [tiles]).append(kernel)
    for name, (tiles, bare, full) in found.items():
        yield row(chip, dim, name, tiles, bare, full)


def lines() -> Iterator[str]:
    yield "| chip | d | kernel | queries x keys | log-sum-exp alone: registers, shared, instructions, products | all statistics |"
    yield "|---|---|---|---|---|---|"
    for chip, dim, backward in CALLS:
        yield from rows(chip, dim, backward)
