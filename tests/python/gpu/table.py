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
    return f"{kernel.registers} | {kernel.spilled} | {kernel.shared} | {kernel.instructions} | {products}"


def rows(chip: str, dim: int, backward: bool) -> Iterator[str]:
    for launch, kernel in Variant(torch.bfloat16, dim, backward=backward).on(TARGETS[chip]):
        if launch.name in KERNELS:
            shape = dict(launch.constants)["SHAPE"]
            tiles = f"{shape.ROWS} x {shape.KEYS}, {dict(launch.options)['num_warps']} warps"
            yield f"| {chip} | {dim} | {launch.name.replace('_', ' ')} | {tiles} | {cells(kernel)} |"


def lines() -> Iterator[str]:
    yield "| chip | d | kernel | queries x keys | registers | spilled | shared | instructions | products |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for chip, dim, backward in CALLS:
        yield from rows(chip, dim, backward)
