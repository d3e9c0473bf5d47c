#!/usr/bin/env python3
"""Checks and measures on the machine that the folder was carried to: results, cost of calls, decode steps, kernels,
tiles.

    bash run --budget 480                     # results/bench.json and results/report.html
    bash run --budget 60 --only check,tune    # two of the steps
    bash run --budget 60 --tiny               # the same way on a CPU, in Triton's interpreter
    bench/carried/run.py --every --only calls,shapes --output results/bench-gpu   # make bench-gpu

bench.json is written again after each measurement. A second run with the same --output continues where the first one
stopped. Failures are recorded as entries. Exit status 0; 1 if a check failed; 2 if nothing could be measured; 130 after
Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.append(str(Path(__file__).parents[2]))
if TYPE_CHECKING:
    from bench.carried.steps import Run

# Steps in order, with the share of the budget at which each stops.
STEPS = {"check": 0.35, "calls": 0.42, "decode": 0.5, "shapes": 0.75, "tune": 0.95, "rest": 1.0}


def steps(text: str) -> list[str]:
    """Returns the names of an option, in the order of STEPS."""
    if unknown := [name for name in text.split(",") if name not in STEPS]:
        raise argparse.ArgumentTypeError(f"must be some of {','.join(STEPS)}; got {unknown[0]}")
    return [name for name in STEPS if name in text.split(",")]


def begun(options: argparse.Namespace) -> Run:
    """Returns a run whose results can be written. Raises ImportError, OSError or ValueError if nothing can be
    measured."""
    import torch  # after the arguments, so that --help needs no torch

    import isentrope
    from bench.carried.kernels import unpack, use_portable_keys
    from bench.carried.steps import Run, gpu, versions

    if gpu.DEVICE == "cpu" and not options.tiny:
        raise ValueError("a CUDA device is needed; got none (--tiny goes the same way without)")
    options.output.mkdir(parents=True, exist_ok=True)
    os.environ["TRITON_CACHE_DIR"] = str(options.output.resolve() / "kernels")
    run = Run(options.output, options.budget, options.tiny, options.every)
    run.write()
    print(f"isentrope of {isentrope.__path__[0]}, {versions()}", flush=True)
    if gpu.DEVICE == "cuda":
        major, minor = torch.cuda.get_device_capability()
        archive = Path(__file__).parents[2] / "kernels.tar.xz"
        use_portable_keys()
        print(unpack(archive, Path(os.environ["TRITON_CACHE_DIR"]), 10 * major + minor), flush=True)
    return run


def measure(run: Run, names: list[str]) -> int:
    """Runs the steps, and returns the exit status."""
    from bench.carried.steps import FUNCTIONS, every_minute, gpu_works

    file = run.output / "bench.json"
    try:
        with every_minute(lambda: print(run.status(), flush=True)):
            for name in names:
                run.begin(name)
                FUNCTIONS[name](run, 1.0 if name == names[-1] else STEPS[name])
                run.write()
                if not gpu_works():
                    print(f"[run] {name} made the device unusable; the same command goes on from {file}", file=sys.stderr)
                    return 1
    except KeyboardInterrupt:
        run.write()
        print(f"[run] interrupted; the same command goes on from {file}", file=sys.stderr)
        return 130
    print(f"wrote {file}", flush=True)
    return 1 if run.failed() else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bash run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="seconds for all steps (480; with --every, no limit)")
    parser.add_argument("--every", action="store_true", help="more shapes and repetitions")
    parser.add_argument("--output", type=Path, default=Path("results"), metavar="FOLDER", help="folder of the results (results)")
    parser.add_argument("--only", type=steps, default=list(STEPS), metavar="STEPS", help=f"some of {','.join(STEPS)}")
    parser.add_argument("--tiny", action="store_true", help="a little of everything, interpreted where there is no GPU")
    options = parser.parse_args(arguments)
    options.budget = options.budget or (float("inf") if options.every else 480.0)
    try:
        run = begun(options)
    except ImportError as error:
        print(f"[run] {error}; PYTHON=FILE bash run takes another Python", file=sys.stderr)
        return 2
    except (OSError, ValueError) as error:
        print(f"[run] {error}", file=sys.stderr)
        return 2
    return measure(run, options.only)


if __name__ == "__main__":
    sys.exit(main())
