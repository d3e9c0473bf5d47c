"""Steps of a run of the carried folder, and its state: results so far, their file, and the time left. Each step takes the run
and the share of its budget at which it must stop."""

from __future__ import annotations

import collections
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import triton

from bench.carried.kernels import use_portable_keys
from bench.gpu import timing as gpu
from bench.gpu import works
from bench.gpu.systems import all_systems, small_systems
from bench.harness import ISENTROPE, LSE_ONLY, first_line
from bench.work import Work, tensors_of
from isentrope.gpu import tuning
from isentrope.gpu.candidates import keys
from isentrope.gpu.processes import Processes
from isentrope.gpu.tile_table import Key
from scripts.json_rows import write_rows


def versions() -> dict[str, str]:
    return {"torch": torch.__version__, "triton": triton.__version__, "python": sys.version.split()[0]}


@contextmanager
def every_minute(show: Callable[[], None], seconds: float = 60) -> Iterator[None]:
    """Calls `show` once a minute during the block."""
    over = threading.Event()

    def loop() -> None:
        while not over.wait(seconds):
            show()

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Run:
    """Results by step: verdicts of problems by line, rows of shapes, calls and decode steps by name. bench.json has
    them all, and a run continues from one of the same device and versions."""

    def __init__(self, output: Path, budget: float, tiny: bool, every: bool = False) -> None:
        """every: shapes are those of make bench-gpu."""
        self.output, self.budget, self.tiny, self.every = output, budget, tiny, every
        self.began = time.monotonic()
        self.step, self.done, self.of = "", 0, 0
        self.limit: dict[str, Any] = {}
        self.notes: dict[str, str] = {}
        self.verdicts: dict[str, dict[str, Any]] = {}
        self.calls: dict[str, dict[str, Any]] = {}
        self.decoded: dict[str, dict[str, Any]] = {}
        self.rows: dict[str, dict[str, Any]] = {}
        self.earlier = 0.0
        self._go_on()

    def _go_on(self) -> None:
        """Takes over the results of an earlier run with this folder."""
        try:
            record = json.loads((self.output / "bench.json").read_text())
            if record["versions"] != versions() or record["machine"] != self.machine:
                return
            self.limit = record["state"]["limit"]
            # Errors are tried again, because the first may have made the device unusable for the others.
            self.verdicts = {name: x for name, x in record["checks"]["verdicts"].items() if x["outcome"] != "ERROR"}
            self.calls = {name: x for name, x in record["calls"].items() if not any(isinstance(us, str) for us in x["host_us"].values())}
            self.decoded = {name: x for name, x in record["decode"].items() if "error" not in x}
            self.rows = {row["work"]["name"]: row for row in record["runs"][0]["rows"]}
            self.earlier = record["seconds"]
        except (OSError, KeyError, TypeError, ValueError):
            return
        print(f"goes on from {self.output}/bench.json: {len(self.verdicts)} problems, {len(self.rows)} shapes", flush=True)

    @property
    def machine(self) -> str:
        return torch.cuda.get_device_name() if gpu.DEVICE == "cuda" else "interpreter"

    def left(self, share: float = 1.0) -> float:
        """Returns the seconds left of that share of the budget."""
        return self.began + share * self.budget - time.monotonic()

    def begin(self, step: str) -> None:
        self.step, self.done, self.of = step, 0, 0

    def status(self) -> str:
        """Returns one line: the time, the step, and its progress."""
        return f"[run] {time.monotonic() - self.began:.0f} of {self.budget:g} s: {self.step}, {self.done} of {self.of}"

    def until_budget(self, what: str, items: list, share: float) -> Iterator[Any]:
        """Yields items while there is time, and writes the results after each. A note counts the items left out."""
        self.of = len(items)
        self.notes.pop(what, None)
        for self.done, item in enumerate(items):
            if self.left(share) <= 0:
                self.notes[what] = f"{len(items) - self.done} of {len(items)} were left out: the time for this step was spent"
                self.write()
                return
            yield item
            self.write()
        self.done = len(items)

    def failed(self) -> list[dict[str, Any]]:
        return [verdict for verdict in self.verdicts.values() if verdict["outcome"] in ("FAILED", "ERROR")]

    def write(self) -> None:
        limit = self.limit or {"memory_read": 1.0, "flops": dict.fromkeys(gpu.DTYPES, 1.0)}
        outcomes = collections.Counter(verdict["outcome"] for verdict in self.verdicts.values())
        record = gpu.result_of(limit, list(self.rows.values()), self.notes)
        record |= {"checks": {"outcomes": dict(outcomes), "failed": self.failed(), "verdicts": self.verdicts}}
        record |= {"calls": self.calls, "decode": self.decoded, "state": {"limit": self.limit}, "versions": versions()}
        record |= {"seconds": round(self.earlier + time.monotonic() - self.began, 1)}
        write_rows(self.output / "bench.json", record, 4)


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

    size = works.SIZE if gpu.DEVICE == "cuda" else 8000
    problem = Problem.of_line(item) if isinstance(item, str) else Problem.generated(works.SEED, item, size)
    if problem.unsupported:
        return {"line": problem.line, "outcome": "SKIPPED"}
    try:
        problem.run(gpu.DEVICE)
        return {"line": problem.line} | problem.verdict()
    except Exception as error:
        return {"line": problem.line, "outcome": "ERROR", "error": first_line(error)}


def check(run: Run, share: float) -> None:
    """Checks problems that failed before, and those that models call."""
    judge(run, "checks", works.TINY_LINES if run.tiny else works.problem_lines(), share)


def check_generated(run: Run, share: float) -> None:
    """Checks generated problems, in the remaining time."""
    judge(run, "generated checks", list(range(2 if run.tiny else works.GENERATED)), share)


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
    for work in run.until_budget("calls", works.TINY_SHAPES[:2] if run.tiny else works.CALLS, share):
        if work.name not in run.calls:
            run.calls[work.name] = gpu.host_row(work, 2 if run.tiny else gpu.HOST_CALLS)


def time_decode(run: Run, share: float) -> None:
    """Times decode steps with lse alone, with all statistics and by their peer, as separate launches and as a graph."""
    for work in run.until_budget("decode", works.TINY_SHAPES[-2:] if run.tiny else works.DECODED, share):
        for system in small_systems():
            name = f"{work.name}, {system.name}"
            if name in run.decoded:
                continue
            row: dict[str, Any] = {"work": work.as_json(), "system": system.name}
            try:
                step = system.prepare(work, *tensors_of(work, gpu.DEVICE))
                row["seconds"] = gpu.warmed(step)
                row["gb_a_second"] = round(work.bytes / row["seconds"] / 1e9, 1)
                row |= gpu.seconds_under_a_graph(step)
            except Exception as error:
                row["error"] = first_line(error)
            run.decoded[name] = row
            print(f"{name}: {row.get('gb_a_second', row.get('error'))} GB/s", flush=True)


def time_shapes(run: Run, share: float) -> None:
    """Times Isentrope with all statistics and with none, and its peers; records each row at once."""
    run.limit = run.limit or gpu.limits()
    listed: list[Work] = works.TINY_SHAPES if run.tiny else [*works.all_work()] if run.every else works.SHAPES
    repetitions = 1 if run.tiny else 9 if run.every else 5
    for work in run.until_budget("shapes", [work for work in listed if work.name not in run.rows], share):
        try:
            systems = gpu.measured(all_systems(), work, repetitions, run.notes)
            if not {ISENTROPE, LSE_ONLY} <= {system["name"] for system in systems}:
                raise RuntimeError("there is no row without isentrope, which did not run")
            run.rows[work.name] = gpu.rated(work, systems, run.limit)
            gpu.print_row(run.rows[work.name])
        except Exception as error:
            run.notes[work.name] = first_line(error)
            print(f"{work.name}: {first_line(error)}", flush=True)


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
        run.notes["tune"] = first_line(error)
    print(f"tiles: {len(record.trials)} candidates in {run.output}/tiles.json", flush=True)


FUNCTIONS: dict[str, Callable[[Run, float], None]] = {
    "check": check, "calls": time_calls, "decode": time_decode, "shapes": time_shapes, "tune": tune, "rest": check_generated,
}  # fmt: skip
