#!/usr/bin/env python3
"""Checks and measures on the machine that the folder was carried to: results, cost of calls, decode steps, kernels,
tiles.

    bench/gpu_carried.py --budget 480 --output DIR [--only check,calls,decode,shapes,tune]
    bench/gpu_carried.py --tiny --budget 60 --output DIR      # the same way on a CPU, in Triton's interpreter

DIR/bench.json is written again after each measurement. A second run with the same DIR continues where the first one
stopped. Failures are recorded as entries. Exit status 1 if a check failed.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

import gpu
import torch
from gpu_carried_kernels import unpack, use_portable_keys
from gpu_carried_run import Run, every_minute, versions
from gpu_carried_steps import check, check_generated, time_calls, time_decode, time_shapes, tune

import isentrope

# Steps in order, with the share of the budget at which each stops.
STEPS: dict[str, tuple[float, Callable[[Run, float], None]]] = {
    "check": (0.35, check),
    "calls": (0.42, time_calls),
    "decode": (0.5, time_decode),
    "shapes": (0.75, time_shapes),
    "tune": (0.95, tune),
    "rest": (1.0, check_generated),
}


def steps(text: str) -> list[str]:
    """Returns the names of an option, in the order of STEPS."""
    if unknown := [name for name in text.split(",") if name not in STEPS]:
        raise argparse.ArgumentTypeError(f"must be some of {','.join(STEPS)}; got {unknown[0]}")
    return [name for name in STEPS if name in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=480.0, help="seconds (480)")
    parser.add_argument("--output", type=Path, default=Path("results"))
    parser.add_argument("--only", type=steps, default=list(STEPS), help=f"some of {','.join(STEPS)}")
    parser.add_argument("--tiny", action="store_true", help="a little of everything, interpreted where there is no GPU")
    given = parser.parse_args()
    if gpu.DEVICE == "cpu" and not given.tiny:
        sys.exit("[run] a CUDA device is needed; got none (--tiny goes the same way without)")
    given.output.mkdir(parents=True, exist_ok=True)
    os.environ["TRITON_CACHE_DIR"] = str(given.output.resolve() / "kernels")
    run = Run(given.output, given.budget, given.tiny)
    print(f"isentrope of {isentrope.__path__[0]}, {versions()}", flush=True)
    if gpu.DEVICE == "cuda":
        major, minor = torch.cuda.get_device_capability()
        archive = Path(__file__).parents[1] / "kernels.tar.xz"
        use_portable_keys()
        print(unpack(archive, Path(os.environ["TRITON_CACHE_DIR"]), 10 * major + minor), flush=True)
    with every_minute(lambda: print(run.status(), flush=True)):
        for name in given.only:
            share, step = STEPS[name]
            run.begin(name)
            step(run, 1.0 if name == given.only[-1] else share)
            run.write()
    run.write()
    print(f"wrote {given.output}/bench.json", flush=True)
    return 1 if run.failed() else 0


if __name__ == "__main__":
    sys.exit(main())
