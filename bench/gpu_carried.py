#!/usr/bin/env python3
"""What `run` does on the machine that the folder was carried to, within a budget of time and in the order of what it tells:
are the numbers right, how fast are the kernels and their peers, what does a CUDA graph save, would other tiles be faster.

    bench/gpu_carried.py --budget 540 --output DIR
    bench/gpu_carried.py --tiny --budget 60 --output DIR      # the same way on a CPU, in Triton's interpreter

DIR/bench.json is written anew after each thing that was measured, so that it holds what there was time for. What fails is
an entry that says so. Exit status 1 where a check failed.
"""

import argparse
import collections
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import gpu
import torch
from gpu_systems import Isentrope, all_systems
from work import Work, square

import isentrope
from isentrope._core.files import write_text
from isentrope.gpu import plan

CHECKS, SEED, SIZE = 300, 40, 200_000
# Of the budget: kernels of every check are compiled first.
FOR_CHECKS = 0.45
# The lines that tell most come first: what models call, in every type, gradients among them.
FIRST = [
    f"dt={dtype} shape=1x2:1x257x300x{dim} mask=causal:bottom_right{bwd}"
    for bwd in (" bwd=1", "") for dtype in ("bf16", "f16", "f32") for dim in (64, 128)
]  # fmt: skip
TINY_FIRST = [f"dt={dtype} shape=1x2:1x17x33x16 mask=causal:bottom_right bwd=1" for dtype in ("bf16", "f32")]
TELLING = [
    square("forward", 4, 32, 4096, 64, "bf16", True), square("forward", 4, 16, 4096, 128, "bf16", True),
    square("gradient", 4, 32, 4096, 64, "bf16", True), square("gradient", 4, 16, 4096, 128, "bf16", True),
    square("entropy", 2, 16, 8192, 128, "bf16", True), Work("decode", 8, 32, 1, 32768, 128, "bf16", False, 8),
    square("forward", 1, 16, 16384, 128, "bf16", True), square("forward", 4, 16, 4096, 128, "bf16", False),
    square("forward", 4, 16, 4096, 128, "f16", True), square("gradient", 4, 16, 4096, 128, "f16", True),
    square("gradient", 1, 16, 16384, 128, "bf16", True), Work("decode", 1, 32, 1, 131072, 128, "bf16", False, 8),
]  # fmt: skip
DECODED = [Work("decode", batch, 32, 1, 8192, 128, "bf16", False, 8) for batch in (1, 8)]
# Beside those of the plan, of calls without statistics.
TILES = {
    ("forward", 64): [(128, 64, 4, 3), (128, 128, 8, 3), (64, 64, 4, 3), (128, 64, 8, 4)],
    ("forward", 128): [(128, 64, 8, 2), (128, 64, 8, 3), (64, 64, 4, 2), (128, 128, 8, 3)],
    ("query gradient", 128): [(128, 64, 8, 2), (64, 64, 4, 2), (128, 32, 8, 3)],
    ("key gradient", 128): [(32, 64, 4, 2), (64, 64, 8, 2), (32, 128, 8, 3)],
}
TINY_TILES = {("forward", 64): [(16, 16, 4, 1)]}


class Run:
    """What was found so far, where it goes, and until when there is time."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.tiny, self.output = arguments.tiny, arguments.output
        self.began = time.monotonic()
        self.budget = arguments.budget
        self.limit: dict[str, Any] = {"memory_read": 1.0, "flops": dict.fromkeys(gpu.DTYPES, 1.0)}
        self.rows: list[dict[str, Any]] = []
        self.notes: dict[str, str] = {}
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.failed: list[dict[str, Any]] = []
        self.graphs: list[dict[str, Any]] = []
        self.tiles: list[dict[str, Any]] = []

    def left(self, share: float = 1.0) -> float:
        """Seconds of that share of the budget, from the start."""
        return self.began + share * self.budget - time.monotonic()

    def write(self) -> None:
        found = gpu.result_of(self.limit, self.rows, self.notes)
        found |= {"checks": {"outcomes": dict(self.outcomes), "failed": self.failed}}
        found |= {"decode_under_a_graph": self.graphs, "tiles": self.tiles}
        found |= {"versions": versions(), "seconds": round(time.monotonic() - self.began, 1)}
        write_text(self.output / "bench.json", json.dumps(found, indent=1) + "\n")

    def within(self, what: str, items: list, share: float = 1.0) -> Iterator[Any]:
        """Those for which there is time; of the others a note says so."""
        for at, item in enumerate(items):
            if self.left(share) <= 0:
                left_out = f"{len(items) - at} of {len(items)} were left out"
                self.notes[what] = f"{left_out}: the budget of {self.budget:g} s was spent"
                self.write()
                return
            yield item
            self.write()


def versions() -> dict[str, str]:
    import triton

    return {"torch": torch.__version__, "triton": triton.__version__, "python": sys.version.split()[0]}


def judged(line: str | int) -> tuple[str, str, dict[str, Any]]:
    """Of a problem, a line or the number of a generated one: the line, the outcome and the verdict."""
    from isentrope.gpu.problems import Problem

    size = SIZE if gpu.DEVICE == "cuda" else 8000
    problem = Problem.of_line(line) if isinstance(line, str) else Problem.generated(SEED, line, size)
    if problem.unsupported:
        return problem.line, "SKIPPED", {}
    try:
        problem.run(gpu.DEVICE)
        verdict = problem.verdict()
    except Exception as error:
        return problem.line, "ERROR", {"error": gpu.first_line(error)}
    return problem.line, verdict["outcome"], verdict


def check(run: Run) -> None:
    """Problems against the float64 reference, in a process for each core: most of their time goes into compiling."""
    lines: list[str | int] = [*TINY_FIRST, *range(3)] if run.tiny else [*FIRST, *range(CHECKS - len(FIRST))]
    processes = 1 if run.tiny else min(16, os.cpu_count() or 1)
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        answers = pool.imap_unordered(judged, lines)
        for _ in run.within("checks", lines, FOR_CHECKS):
            try:
                line, outcome, verdict = answers.next(max(run.left(FOR_CHECKS), 0.1))
            except multiprocessing.TimeoutError:
                continue
            run.outcomes[outcome] += 1
            if outcome in ("FAILED", "ERROR"):
                run.failed.append({"line": line} | verdict)
                print(f"{outcome} {line}", flush=True)
        pool.terminate()
    print(f"checks: {dict(run.outcomes)} of {len(lines)}", flush=True)


def time_shapes(run: Run) -> None:
    """Ours with all statistics and with none, and the peers; each row when it is measured."""
    for work in run.within("shapes", gpu.TINY if run.tiny else TELLING):
        try:
            systems = gpu.measured(all_systems(), work, 1 if run.tiny else 5, run.notes)
            if not {gpu.OURS, gpu.BARE} <= {system["name"] for system in systems}:
                raise RuntimeError("there is no row without isentrope, which did not run")
            run.rows.append(gpu.row_of(work, systems, run.limit))
            gpu.print_row(run.rows[-1])
        except Exception as error:
            run.notes[work.name] = gpu.first_line(error)
            print(f"{work.name}: {gpu.first_line(error)}", flush=True)


def time_graphs(run: Run) -> None:
    """A decode step launched kernel by kernel, and replayed as a graph."""
    for work in run.within("decode under a graph", gpu.TINY[-1:] if run.tiny else DECODED):
        row = {"work": work.as_json()}
        try:
            step = Isentrope(True).prepare(work, *gpu.tensors_of(work))
            row["seconds"] = gpu.warmed(step)
            row["graph_seconds"] = gpu.warmed(captured(step).replay)
        except Exception as error:
            row["error"] = gpu.first_line(error)
        run.graphs.append(row)
        print(f"under a graph: {row}", flush=True)


def captured(step: Any) -> torch.cuda.CUDAGraph:
    if gpu.DEVICE != "cuda":
        raise RuntimeError("a CUDA graph needs a CUDA device; got none")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def time_tiles(run: Run) -> None:
    """Other tiles than the plan's for one kernel of a call without statistics."""
    chosen = TINY_TILES if run.tiny else TILES
    for kernel, columns in run.within("tiles", list(chosen)):
        kind = "forward" if kernel == "forward" else "gradient"
        work = gpu.TINY[0] if run.tiny else square(kind, 4, 2048 // columns, 4096, columns, "bf16", True)
        for tiles in (None, *(plan.Tiles(*tile) for tile in chosen[kernel, columns])):
            row = {"kernel": kernel, "work": work.as_json(), "tiles": "of the plan" if tiles is None else list(tiles)}
            try:
                row["seconds"] = with_tiles(kernel, tiles, work)
            except Exception as error:
                row["error"] = gpu.first_line(error)
            run.tiles.append(row)
            print(f"tiles: {row}", flush=True)


def with_tiles(kernel: str, tiles: plan.Tiles | None, work: Work) -> float:
    planned = plan.tiles

    def chosen(name: str, *args: Any) -> plan.Tiles:
        return tiles if tiles is not None and name == kernel else planned(name, *args)

    with mock.patch.object(plan, "tiles", chosen):
        return gpu.warmed(Isentrope(False).prepare(work, *gpu.tensors_of(work)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=540.0, help="seconds (540)")
    parser.add_argument("--output", type=Path, default=Path("results"))
    parser.add_argument("--tiny", action="store_true", help="a little of everything, interpreted where there is no GPU")
    run = Run(parser.parse_args())
    if gpu.DEVICE == "cpu" and not run.tiny:
        sys.exit("[run] a CUDA device is needed; got none (--tiny goes the same way without)")
    run.output.mkdir(parents=True, exist_ok=True)
    print(f"isentrope of {isentrope.__path__[0]}, {versions()}", flush=True)
    check(run)
    run.limit = gpu.limits()
    for step in (time_shapes, time_graphs, time_tiles):
        step(run)
    run.write()
    print(f"wrote {run.output}/bench.json", flush=True)
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
