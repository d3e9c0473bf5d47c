#!/usr/bin/env python3
"""Writes the tables of compiled kernels in docs/contributors/gpu-compiled.md and gpu-time.md, and docs/results/gpu-static.json.

    bench/gpu/tables.py [compiled] [static] [statistics] [measured]  # all of them: some minutes; PYTHONPATH must have isentrope, as in the build's python folder
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
sys.path.append(str(Path(__file__).parents[2] / "docs/generate"))

from marks import put

from bench.gpu import costs, static
from isentrope._core.files import write_text
from src.gpu.compiling import TARGETS, Compiled, Launch
from src.gpu.lines import Line

ROOT = Path(__file__).parents[2]
PAGE, OF_TIME = ROOT / "docs/contributors/gpu-compiled.md", ROOT / "docs/contributors/gpu-time.md"
CHIPS = ("sm_80", "sm_90", "sm_100", "gfx942")  # sm_86, 89 and 120 use the tiles of sm_80
CALLS = [
    (chip, dim, backward)
    for chip in CHIPS for dim in ((64, 128) if chip == "sm_90" else (128,)) for backward in (False, True)
]  # fmt: skip
KERNELS = ("forward", "query_gradient", "key_gradient")


def rows(chip: str, dim: int, backward: bool) -> Iterator[str]:
    """Yields rows of the first table: the kernels of a call, with all statistics and with none."""
    words = ("", "stats=lse")
    calls = (Line(f"dt=bf16 shape=4x32:8x1024x1024x{dim} mask=causal:bottom_right {word}{' bwd=1' * backward}") for word in words)
    full, bare = ({name(one): cells(one, kernel) for one, kernel in call.on(TARGETS[chip]) if one.name in KERNELS} for call in calls)
    for kernel in full:
        shown = (a if a == b else f"{a}, {b}" for a, b in zip(full[kernel], bare.get(kernel, full[kernel])))
        yield f"| {chip} | {dim} | {kernel} | {' | '.join(shown)} |"
    for kernel in [kernel for kernel in bare if kernel not in full]:
        yield f"| {chip} | {dim} | {kernel}, with none | {' | '.join(bare[kernel])} |"


def name(launch: Launch) -> str:
    constants, shown = dict(launch.constants), launch.name.replace("_", " ")
    apart = "" if constants.get("DK", True) and constants.get("DV", True) else "dk" if constants["DK"] else "dv"
    return f"{shown}: {apart}" if apart else shown


def cells(launch: Launch, kernel: Compiled) -> list[str]:
    shape, options = dict(launch.constants)["SHAPE"], dict(launch.options)
    products = " ".join(f"{count} {name}" for name, count in kernel.products.items())
    numbers = (kernel.registers, kernel.spilled, kernel.shared, kernel.instructions)
    return [f"{shape.ROWS} x {shape.KEYS}, {options['num_warps']} warps", *map(str, numbers), products]


def compiled() -> Iterator[str]:
    yield "| chip | d | kernel | queries x keys | registers | spilled | shared | instructions | products |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for call in CALLS:
        yield from rows(*call)


def static_table() -> Iterator[str]:
    kernels = [x for dtype in static.DTYPES for dim in static.DIMS for x in static.measured(dtype, dim)]
    write_text(ROOT / "docs/results/gpu-static.json", json.dumps(static.as_json(kernels)) + "\n")
    return static.table([x for x in kernels if x.dtype == "bf16"])


TABLES = {
    "compiled": (PAGE, compiled), "static": (PAGE, static_table),
    "statistics": (OF_TIME, lambda: costs.table(costs.every_cost("bf16"))),
    "measured": (OF_TIME, lambda: costs.table(costs.every_cost("bf16", measured_tiles=True))),
}  # fmt: skip


def main() -> None:
    for name in sys.argv[1:] or TABLES:
        page, lines = TABLES[name]
        write_text(page, put(page.read_text(), name, lines()))


if __name__ == "__main__":
    main()
