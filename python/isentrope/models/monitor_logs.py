"""Logs of the monitor: JSON lines, TensorBoard, Weights & Biases; and readings of several ranks.

A log is called with a step and a `Reading`:

    log = JsonLines("run/attention.jsonl")             # `isentrope report run/attention.jsonl` draws heads by steps
    log = TensorBoard(SummaryWriter("run"))
    log = WeightsAndBiases(wandb.init(mode="offline"))

    if monitor.latest:
        log(step, monitor.latest)
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from isentrope.models.monitor import LOGGED, Reading, or_nan

Log = Callable[[int, Reading], None]


class JsonLines:
    """Appends one line for each head: step and a row of `Reading.rows`, with null for NaN and infinity."""

    def __init__(self, path: str | Path) -> None:
        """Creates the folder of the file. An existing file is continued, for resumed runs."""
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def __call__(self, step: int, reading: Reading) -> None:
        rows = [{key: x if isinstance(x, str) or math.isfinite(x) else None for key, x in row.items()} for row in reading.rows()]
        lines = [json.dumps({"step": step, **row}) + "\n" for row in rows]
        with self.path.open("a") as file:
            file.writelines(lines)


class TensorBoard:
    """Adds `Reading.summary()` and `Reading.heads()` as scalars to a `SummaryWriter`."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer

    def __call__(self, step: int, reading: Reading) -> None:
        for name, value in (reading.summary() | reading.heads()).items():
            self.writer.add_scalar(name, value, step)


class WeightsAndBiases:
    """Logs `Reading.summary()` and `Reading.heads()` to a run of wandb, online or offline."""

    def __init__(self, run: Any) -> None:
        self.run = run

    def __call__(self, step: int, reading: Reading) -> None:
        self.run.log(reading.summary() | reading.heads(), step=step)


def gathered(reading: Reading, group: Any = None) -> list[Reading]:
    """Returns the readings of all ranks of the group, on every rank, by one all-gather; without ranks this one.

    Every rank must have the same modules and heads. `merged` combines the readings.
    """
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return [reading]
    mine = torch.stack(reading[:-1])
    all_ranks = [torch.empty_like(mine) for _ in range(distributed.get_world_size(group))]
    distributed.all_gather(all_ranks, mine, group)
    return [Reading(*numbers, names=reading.names) for numbers in all_ranks]


def merged(readings: Sequence[Reading]) -> Reading:
    """Combines readings of ranks that read equally many rows: means, and the largest max_logit.

    The spread is the standard deviation over the rows of all ranks."""
    *numbers, spread, broken = (torch.stack(each) for each in list(zip(*readings))[:-1])
    found = {
        name: each.nanmean(0) if LOGGED[name] == "mean" else or_nan(each.nan_to_num(-torch.inf).amax(0))
        for name, each in zip(LOGGED, numbers)
    }
    squares = (spread.square() + numbers[list(LOGGED).index("entropy")].square()).nanmean(0)
    deviation = (squares - found["entropy"].square()).clamp(min=0).sqrt()
    return Reading(**found, spread=deviation, broken=broken.nanmean(0), names=readings[0].names)
