"""Steps of a run of the carried folder. Each takes the run and the share of its budget at which it must stop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import gpu
import gpu_carried_work as carried
import torch
from gpu_carried_kernels import use_portable_keys
from gpu_carried_run import Run
from gpu_systems import all_systems, small_systems
from work import Work

from isentrope.gpu import tuning
from isentrope.gpu.candidates import keys
from isentrope.gpu.processes import Processes
from isentrope.gpu.tile_table import Key


def gpu_works() -> bool:
    """Returns whether the device still works in this process. After an invalid address every call would fail."""
    try:
        if gpu.DEVICE == "cuda":
            torch.cuda.synchronize()
    except Exception:
        return False
    return True


def verdict_of(item: str | int) -> dict[str, Any]:
    """Runs in a separate process. Returns the verdict on a problem: a line or the number of a generated one."""
    from isentrope.gpu.problems import Problem

    size = carried.SIZE if gpu.DEVICE == "cuda" else 8000
    problem = Problem.of_line(item) if isinstance(item, str) else Problem.generated(carried.SEED, item, size)
    if problem.unsupported:
        return {"line": problem.line, "outcome": "SKIPPED"}
    try:
        problem.run(gpu.DEVICE)
        return {"line": problem.line} | problem.verdict()
    except Exception as error:
        return {"line": problem.line, "outcome": "ERROR", "error": gpu.first_line(error)}


def check(run: Run, share: float) -> None:
    """Checks problems that failed before, and those that models call."""
    judge(run, "checks", carried.TINY_LINES if run.tiny else carried.problem_lines(), share)


def check_generated(run: Run, share: float) -> None:
    """Checks generated problems, in the remaining time."""
    judge(run, "generated checks", list(range(2 if run.tiny else carried.GENERATED)), share)


def judge(run: Run, what: str, items: list[Any], share: float) -> None:
    """Compares problems with the float64 reference, in a process for each core, unless they have a verdict. A process
    that crashes, or whose device has become unusable, costs the problem that it had."""
    items = [item for item in items if str(item) not in run.verdicts]
    processes = 1 if run.tiny else max(1, min(16, os.cpu_count() or 1, len(items)))
    with Processes(processes, verdict_of, items, use_portable_keys, usable=gpu_works) as answers:
        for _ in run.until_budget(what, items, share):
            try:
                item, verdict, crash = answers.next(max(run.left(share), 0.1))
            except TimeoutError:
                continue
            if crash:
                verdict = {"line": str(item), "outcome": "ERROR", "error": crash}
            run.verdicts[str(item)] = verdict
            if verdict["outcome"] in ("FAILED", "ERROR"):
                print(f"{verdict['outcome']} {verdict['line']}", flush=True)
    print(f"{what}: {len(run.failed())} of {len(run.verdicts)} failed so far", flush=True)


def time_calls(run: Run, share: float) -> None:
    """Measures the host time of small calls."""
    for work in run.until_budget("calls", carried.TINY_SHAPES[:2] if run.tiny else carried.CALLS, share):
        if work.name not in run.calls:
            run.calls[work.name] = gpu.host_row(work, 2 if run.tiny else gpu.HOST_CALLS)


def time_decode(run: Run, share: float) -> None:
    """Times decode steps with lse alone, with all statistics and by their peer, as separate launches and as a graph."""
    for work in run.until_budget("decode", carried.TINY_SHAPES[-2:] if run.tiny else carried.DECODED, share):
        for system in small_systems():
            name = f"{work.name}, {system.name}"
            if name in run.decoded:
                continue
            row: dict[str, Any] = {"work": work.as_json(), "system": system.name}
            try:
                step = system.prepare(work, *gpu.tensors_of(work))
                row["seconds"] = gpu.warmed(step)
                row["gb_a_second"] = round(work.bytes / row["seconds"] / 1e9, 1)
                row |= gpu.seconds_under_a_graph(step)
            except Exception as error:
                row["error"] = gpu.first_line(error)
            run.decoded[name] = row
            print(f"{name}: {row.get('gb_a_second', row.get('error'))} GB/s", flush=True)


def time_shapes(run: Run, share: float) -> None:
    """Times Isentrope with all statistics and with none, and its peers; records each row at once."""
    run.limit = run.limit or gpu.limits()
    works: list[Work] = carried.TINY_SHAPES if run.tiny else carried.SHAPES
    for work in run.until_budget("shapes", [work for work in works if work.name not in run.rows], share):
        try:
            systems = gpu.measured(all_systems(), work, 1 if run.tiny else 5, run.notes)
            if not {gpu.ISENTROPE, gpu.ISENTROPE_LSE_ONLY} <= {system["name"] for system in systems}:
                raise RuntimeError("there is no row without isentrope, which did not run")
            run.rows[work.name] = gpu.row_of(work, systems, run.limit)
            gpu.print_row(run.rows[work.name])
        except Exception as error:
            run.notes[work.name] = gpu.first_line(error)
            print(f"{work.name}: {gpu.first_line(error)}", flush=True)


def tune(run: Run, share: float) -> None:
    """Measures the tiles of this card, as isentrope tune does, into tiles.json."""
    if gpu.DEVICE != "cuda":
        run.notes["tune"] = "left out: tiles are timed on a device alone"
        return

    def progress(stage: str, done: int, all_: int) -> None:
        run.step, run.done, run.of = f"tune, {stage}", done, all_

    device = tuning.Device(torch.device("cuda", torch.cuda.current_device()), setup=use_portable_keys)
    wanted: list[Key] = keys()
    record = tuning.Record(run.output / "tiles.json", device.chip)
    try:
        tuning.tune(wanted, device, record, progress=progress, left=lambda: run.left(share))
    except tuning.DeviceLost as error:
        run.notes["tune"] = gpu.first_line(error)
    print(f"tiles: {len(record.trials)} candidates in {run.output}/tiles.json", flush=True)


FUNCTIONS: dict[str, Callable[[Run, float], None]] = {
    "check": check, "calls": time_calls, "decode": time_decode, "shapes": time_shapes, "tune": tune, "rest": check_generated,
}  # fmt: skip
