#!/usr/bin/env python3
"""Prints tables of compiled kernels, and which limits they hold: exit status 1 if one is missed.

    bench/gpu/tables.py [compiled] [static] [statistics] [measured] [decode] [waves] [--write]

All of them take some minutes. PYTHONPATH must have isentrope, as in the build's python folder. --write: into docs/contributors and
docs/results instead."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
sys.path.append(str(Path(__file__).parents[2] / "docs/generate"))

from marks import put

from bench.gpu import bar, costs, decode, static
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
# Rows of a table, limits, and a file with more of it, or "".
Found = tuple[Iterable[str], list[bar.Bar], str]
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


def statics() -> Found:
    shapes = [static.measured(dtype, dim) for dtype in static.DTYPES for dim in static.DIMS]
    kernels = [x for shape in shapes for x in shape]
    text = json.dumps(static.as_json(kernels)) + "\n"
    return static.table([x for x in kernels if x.dtype == "bf16"]), [one for shape in shapes for one in bar.bars(shape)], text


def statistics(measured_tiles: bool) -> Found:
    found = costs.every_cost("bf16", measured_tiles)
    return costs.table(found), [one for cost in found for one in costs.bars(cost)], ""


def decoding() -> Found:
    calls = itertools.product(decode.DTYPES, decode.INSTRUCTIONS, (False, True), decode.PAGES)
    steps = [decode.measured(*call) for call in calls]
    return decode.table(steps), [one for step in steps for one in decode.bars(step)], ""


def waves() -> Found:
    return decode.table_of_waves(), [*decode.bars_of_waves(), *decode.bars_of_merges()], ""


# The page of each table, if it stands on one, and what computes it.
TABLES: dict[str, tuple[Path | None, Callable[[], Found]]] = {
    "compiled": (PAGE, lambda: (compiled(), [], "")), "static": (PAGE, statics), "statistics": (OF_TIME, lambda: statistics(False)),
    "measured": (OF_TIME, lambda: statistics(True)), "decode": (None, decoding), "waves": (None, waves),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"some of {', '.join(TABLES)}; all of them by default")
    parser.add_argument("--write", action="store_true")
    given, missed = parser.parse_args(), 0
    for name in given.tables or TABLES:
        page, find = TABLES[name]
        lines, limits, text = find()
        for limit in limits:
            print(limit, file=sys.stderr)
            missed += not limit.holds
        if not (given.write and page):
            print(name, *lines, "", sep="\n")
            continue
        write_text(page, put(page.read_text(), name, lines))
        if text:
            write_text(ROOT / f"docs/results/gpu-{name}.json", text)
    return missed > 0


if __name__ == "__main__":
    sys.exit(main())
