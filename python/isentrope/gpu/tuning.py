"""Measures the fastest tiles of each kernel on a card, and saves them in a table.

Candidates are compiled on all cores, in processes without a device. Then each is checked against the float64 reference
on a small call and, if right, timed on a large one.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from isentrope._core.call import call_of
from isentrope._core.files import read_text, write_text
from isentrope._core.library import BITS, LSE
from isentrope.gpu import launch, plan, tile_table
from isentrope.gpu.candidates import candidates
from isentrope.gpu.processes import Processes
from isentrope.gpu.tile_table import Key, Tiles
from isentrope.statistics import ALL

# Largest error of a right result, over the largest number of the reference. A wrong kernel has far larger errors.
_TOLERANCE = {"bf16": 0.02, "f16": 0.004, "f32": 1e-4}
# Share of a limited time that compiling may take, so that what is compiled can be timed; and a time without limit.
_COMPILING, _LONG = 0.6, 1e9
_TYPES = {name: dtype for dtype, name in plan.DTYPES.items()}
# Called with a stage, the number of its candidates that are done, and their total.
Progress = Callable[[str, int, int], None]
# Returns the seconds that are left.
Left = Callable[[], float]


class Trial(NamedTuple):
    """Measurement of a candidate: milliseconds of the call, or why there are none."""

    key: Key
    tiles: Tiles
    ms: float | None = None
    error: str = ""


class Sizes(NamedTuple):
    """Shape of a call."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int


def sizes_of(key: Key, tiles: Tiles, timed: bool) -> Sizes:
    """Returns the shape of the timed call, or of the smaller checked one. Both compile to the same kernel."""
    if key.kernel == "few rows":
        # With as many programs, the keys of both are split, or of neither.
        return Sizes(8, 32, 8, 1, 32768 if timed else 2048)
    if not timed:
        # Like those of the timed call, the keys are not split, because two shares would have fewer than four tiles
        # each. Queries are the last, so that they see whole tiles.
        return Sizes(1, 4, 4, 240, 240) if tiles.keys >= 32 else Sizes(1, 4, 4, 48, 112)
    heads = max(2, 2048 // key.columns)
    return Sizes(1 if key.dtype == "f32" else 4, heads, heads, 4096, 4096)


class Inputs(NamedTuple):
    """Arguments of a call for a key, in its type, and the upstream gradient of the output."""

    q: Tensor
    k: Tensor
    v: Tensor
    d_output: Tensor
    attn_mask: Tensor | None

    @classmethod
    def of(cls, key: Key, sizes: Sizes, device: Any) -> Inputs:
        generator = torch.Generator(device).manual_seed(1)
        rows = (sizes.batch, sizes.heads, sizes.queries, key.columns)
        cache = (sizes.batch, sizes.kv_heads, sizes.keys, key.columns)
        shapes = (rows, cache, cache, rows)
        made = [torch.randn(shape, device=device, generator=generator).to(_TYPES[key.dtype]) for shape in shapes]
        mask = None
        if key.kernel.startswith("masked "):
            mask = torch.rand(sizes.queries, sizes.keys, device=device, generator=generator) < 0.9
            mask = mask.expand(sizes.batch, sizes.heads, sizes.queries, sizes.keys)
        return cls(*(*made, mask))  # type: ignore[arg-type]

    def to(self, device: Any, dtype: torch.dtype | None = None) -> Inputs:
        floats = (x.to(device, dtype) for x in self[:4])
        return Inputs(*(*floats, None if self.attn_mask is None else self.attn_mask.to(device)))  # type: ignore[arg-type]


def prepared(key: Key, x: Inputs, operators: Any) -> Callable[[], tuple[Tensor, ...]]:
    """Returns a function that makes the call and returns the output and each statistic, or dq, dk and dv.

    operators: has the functions `attention` and `attention_backward` of the library."""
    arguments = call_of(x.q, x.k, x.v, causal=key.kernel != "few rows", attn_mask=x.attn_mask)
    wanted = {"lse": LSE, "moments": LSE | BITS["entropy"], "all": ALL}[key.results]

    def forward() -> tuple[Tensor, ...]:
        output, statistics, _ = operators.attention(*arguments, wanted)
        return output, *statistics

    if "gradient" not in key.kernel:
        return forward
    output, statistics, _ = operators.attention(*arguments, wanted)
    upstream = torch.full_like(statistics, 0.1) if key.results != "lse" else None
    rest = (wanted, output, statistics, x.d_output, upstream, False, False, False, False)
    return lambda: operators.attention_backward(*arguments, *rest)[:3]


def compile_candidate(key: Key, tiles: Tiles, chip: plan.Chip) -> None:
    """Compiles the kernels of the checked call, which are those of the timed one, into Triton's cache.

    The process must have been prepared by `compile_instead_of_running`."""
    with tile_table.trying(chip.kind, chip.card, key, tiles):
        prepared(key, Inputs.of(key, sizes_of(key, tiles, timed=False), "cpu"), launch)()


def _start_worker(target: tuple[str, Any, int], chip: plan.Chip, setup: Callable[[], None] | None) -> None:
    from triton.backends.compiler import GPUTarget

    from isentrope.gpu.ahead import compile_instead_of_running

    if setup:
        setup()
    compile_instead_of_running(GPUTarget(*target), chip)


def _compiled(item: tuple[Key, Tiles, plan.Chip]) -> str:
    """Runs in a worker process. Returns the error of a candidate, or ""."""
    try:
        compile_candidate(*item)
    except Exception as error:
        return _first_line(error)
    return ""


def _first_line(error: Exception) -> str:
    return (str(error) or repr(error)).strip().splitlines()[0][:200]


class Device:
    """Checks and times candidates on a device.

    operators: functions to call. timer: returns the milliseconds of a call of a function. setup: called first in each
    process that compiles.
    """

    def __init__(
        self, device: torch.device, operators: Any = launch, timer: Callable[[Callable[[], Any]], float] | None = None,
        setup: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self.device, self.chip, self._setup = device, plan.chip_of(device), setup
        self._operators, self._timer = operators, timer or _milliseconds
        self._references: dict[tuple[Key, Sizes], tuple[Inputs, list[Tensor]]] = {}

    def compile_all(self, items: list[tuple[Key, Tiles]], jobs: int) -> Iterator[tuple[Key, Tiles, str]]:
        """Compiles candidates on `jobs` processes, and yields each with its error as soon as it is done."""
        target = triton.runtime.driver.active.get_current_target()
        started_with = (target.backend, target.arch, target.warp_size), self.chip, self._setup
        with Processes(jobs, _compiled, [(*item, self.chip) for item in items], _start_worker, *started_with) as processes:
            for _ in items:
                (key, tiles, _), error, crash = processes.next()
                yield key, tiles, f"does not compile: {crash or error}" if crash or error else ""

    def measure(self, key: Key, tiles: Tiles) -> float:
        """Returns the milliseconds of a call with these tiles. Raises ValueError if its results are wrong."""
        inputs, wanted = self._reference(key, sizes_of(key, tiles, timed=False))
        with tile_table.trying(self.chip.kind, self.chip.card, key, tiles):
            got = prepared(key, inputs.to(self.device), self._operators)()
            for index, (a, b) in enumerate(zip(got, wanted)):
                error = float((a.cpu().double() - b).abs().max() / b.abs().max().clamp_min(1e-30))
                if not error <= _TOLERANCE[key.dtype]:
                    raise ValueError(f"wrong: result {index} is off by {error:.2g} of its largest number")
            timed = Inputs.of(key, sizes_of(key, tiles, timed=True), self.device)
            return self._timer(prepared(key, timed, self._operators))

    def require_working(self) -> None:
        """Raises RuntimeError if a kernel has made the device unusable in this process, as an invalid address does."""
        if self.device.type != "cpu":
            torch.get_device_module(self.device.type).synchronize(self.device)

    def _reference(self, key: Key, sizes: Sizes) -> tuple[Inputs, list[Tensor]]:
        if (key, sizes) not in self._references:
            self._references.clear()  # candidates of a key follow one another
            inputs = Inputs.of(key, sizes, "cpu")
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*float64 is computed by the reference")
                found = prepared(key, inputs.to("cpu", torch.float64), torch.ops.isentrope)()
            self._references[key, sizes] = inputs, [x.double() for x in found]
        return self._references[key, sizes]


def _milliseconds(run: Callable[[], Any]) -> float:
    return triton.testing.do_bench(run, warmup=20, rep=60, return_mode="median")


class Record:
    """Table of a card with all trials, in a file that is written about once a second. An interrupted run continues from
    it if Triton and the kernels are the same."""

    def __init__(self, file: Path, chip: plan.Chip) -> None:
        self.file, self.chip, self._written = file, chip, 0.0
        self.trials: dict[tuple[Key, Tiles], Trial] = {}
        if file.exists():
            self.trials = {trial[:2]: trial for trial in self._kept(read_text(file))}

    def _kept(self, text: str) -> list[Trial]:
        try:
            found = json.loads(text)
            if any(found[name] != value for name, value in self._head().items() if name != "date"):
                return []
            return [Trial(Key(*key), Tiles(*tiles), ms, error) for key, tiles, ms, error in found["trials"]]
        except (KeyError, TypeError, ValueError):
            return []  # missing, or of another version: measured anew

    def _head(self) -> dict[str, Any]:
        return {
            "version": tile_table.VERSION, "card": self.chip.card, "chip": self.chip.kind,
            "date": datetime.date.today().isoformat(), "torch": torch.__version__, "triton": triton.__version__, "kernels": tile_table.kernels_hash(),
        }  # fmt: skip

    def add(self, trial: Trial) -> None:
        self.trials[trial[:2]] = trial
        if time.monotonic() - self._written > 1:
            self.write()

    def write(self) -> None:
        write_text(self.file, json.dumps(self.as_json()) + "\n")
        self._written = time.monotonic()

    def rows(self) -> list[dict[str, Any]]:
        """Returns the fastest right tiles of each key, with the time of the plan's own."""
        by_key: dict[Key, list[Trial]] = {}
        for trial in self.trials.values():
            by_key.setdefault(trial.key, []).append(trial)
        found = []
        for key, trials in by_key.items():
            timed = [trial for trial in trials if trial.ms is not None]
            if not timed:
                continue
            best = min(timed, key=lambda trial: trial.ms or 0.0)
            planned = plan.unmeasured(key, self.chip)
            planned_ms = next((trial.ms for trial in trials if trial.tiles == planned), None)
            found.append(key._asdict() | {"tiles": tile_table.as_json(best.tiles), "ms": best.ms, "planned_ms": planned_ms})
        return found

    def as_json(self) -> dict[str, Any]:
        return self._head() | {"rows": self.rows(), "trials": [list(trial) for trial in self.trials.values()]}


def tune(
    keys: list[Key], device: Any, record: Record, *, jobs: int = 0, progress: Progress | None = None,
    left: Left = lambda: float("inf"), again: bool = False,
) -> Record:  # fmt: skip
    """Measures the candidates of `keys` that the record lacks, or with `again` all of them, as long as `left` seconds
    remain. Compiling takes at most _COMPILING of these.

    device: a `Device`. jobs: processes that compile; 0: one for each core. progress: see `Progress`. Raises DeviceLost
    if a candidate makes the device unusable; another run goes on with the next one."""
    show = progress or (lambda *_: None)
    items = [(key, tiles) for key in keys for tiles in candidates(key, device.chip)]
    items = [item for item in items if again or item not in record.trials]
    try:
        right = _compile(items, device, record, jobs or os.cpu_count() or 1, show, left)
        _measure(right, device, record, show, left)
    finally:
        if record.trials:
            record.write()
        tile_table.forget()
    return record


def _compile(items: list[tuple[Key, Tiles]], device: Any, record: Record, jobs: int, show: Progress, left: Left) -> list[tuple[Key, Tiles]]:
    """Compiles candidates, records those that fail, and returns the others in their order."""
    compiled, least = set(), (1 - _COMPILING) * min(left(), _LONG)
    with contextlib.closing(device.compile_all(items, jobs)) as answers:
        for done, (key, tiles, error) in enumerate(answers, 1):
            if error:
                record.add(Trial(key, tiles, None, error))
            else:
                compiled.add((key, tiles))
            show("compiled", done, len(items))
            if left() <= least:
                break
    return [item for item in items if item in compiled]


def _measure(items: list[tuple[Key, Tiles]], device: Any, record: Record, show: Progress, left: Left) -> None:
    """Checks and times candidates, and records each."""
    for done, (key, tiles) in enumerate(items, 1):
        if left() <= 0:
            break
        ms, reason = None, ""
        try:
            ms = round(device.measure(key, tiles), 5)
        except Exception as error:  # such as a lack of shared memory
            reason = _first_line(error)
        record.add(Trial(key, tiles, ms, reason))
        if reason:
            _require_working(device, f"{key.kernel} with {tiles}")
        show("checked and timed", done, len(items))


class DeviceLost(OSError):
    """A kernel made the device unusable in this process."""


def _require_working(device: Any, candidate: str) -> None:
    try:
        device.require_working()
    except Exception as error:
        raise DeviceLost(f"{candidate} made the device unusable; the next run goes on without it: {_first_line(error)}") from error


def with_time_left(show: Progress, clock: Callable[[], float] = time.monotonic) -> Progress:
    """Returns a progress function that adds the expected seconds of the rest of a stage."""
    began: dict[str, float] = {}

    def shown(stage: str, done: int, all_: int) -> None:
        now = clock()
        seconds = (now - began.setdefault(stage, now)) / max(done - 1, 1) * (all_ - done)
        show(f"{stage}, {seconds:.0f} s left" if done > 1 else stage, done, all_)

    return shown
