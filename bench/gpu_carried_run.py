"""State of a run of the carried folder: results so far, their file, and the time left."""

from __future__ import annotations

import collections
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gpu
import torch
from json_rows import write_rows


def versions() -> dict[str, str]:
    import triton

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

    def __init__(self, output: Path, budget: float, tiny: bool) -> None:
        self.output, self.budget, self.tiny = output, budget, tiny
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
