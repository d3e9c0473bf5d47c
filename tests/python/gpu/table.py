"""The table of docs/gpu.md."""

from collections.abc import Iterator

import torch
from variants import Variant

from isentrope.gpu.compiling import TARGETS, Compiled, Launch

BEGIN, END = "<!-- begin compiled -->", "<!-- end compiled -->"
CALLS = [
    (chip, dim, backward)
    for chip in TARGETS for dim in ((64, 128) if chip == "sm_90" else (128,)) for backward in (False, True)
]  # fmt: skip
KERNELS = ("forward", "query_gradient", "key_gradient")


def rows(chip: str, dim: int, backward: bool) -> Iterator[str]:
    calls = (Variant(torch.bfloat16, dim, statistics, backward=backward) for statistics in (True, False))
    for (launch, kernel), (_, bare) in zip(*(call.on(TARGETS[chip]) for call in calls), strict=True):
        if launch.name in KERNELS:
            yield f"| {chip} | {dim} | {launch.name.replace('_', ' ')} | {tiles(launch)} | {cells(kernel, bare)} |"


def tiles(launch: Launch) -> str:
    shape, options = dict(launch.constants)["SHAPE"], dict(launch.options)
    return f"{shape.ROWS} x {shape.KEYS}, {options['num_warps']} warps"


def cells(kernel: Compiled, bare: Compiled) -> str:
    products = " ".join(f"{count} {name}" for name, count in kernel.products.items())
    pairs = ((getattr(kernel, name), getattr(bare, name)) for name in ("registers", "spilled", "shared", "instructions"))
    return " | ".join(f"{one}, {other}" if one != other else str(one) for one, other in pairs) + f" | {products}"


def lines() -> Iterator[str]:
    yield "| chip | d | kernel | queries x keys | registers | spilled | shared | instructions | products |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for chip, dim, backward in CALLS:
        yield from rows(chip, dim, backward)
