"""Times every system on every piece of work, in one process, and prints JSON.

    measure.py LIBRARY --threads 1 [--quick]

Systems alternate, repetition by repetition, so that disturbances affect all of them alike.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[2]))
from bench.cpu.systems import all_systems
from bench.errors import error_of
from bench.harness import prepared, row_of, timed
from bench.work import FULL, QUICK, tensors_of


def seconds_of(run, inner, clock):
    start = clock()
    for _ in range(inner):
        output = run()
    return (clock() - start) / inner, output


def measure(systems, work, repetitions, clock, notes):
    tensors = tensors_of(work)
    runs = prepared(systems, work, tensors, notes)
    rest = {system.name: getattr(system, "rest", 0.01) for system in systems}
    inner = {name: max(1, int(0.02 / seconds_of(run, 1, clock)[0])) for name, run in runs.items()}
    return row_of(work, timed(
        runs, repetitions, lambda name: seconds_of(runs[name], inner[name], clock),
        lambda name, output: {"error": error_of(work, output, *tensors[:3])},
        lambda name: time.sleep(rest[name]) if clock is time.perf_counter else None,
    ))  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repetitions", type=int, default=7)
    arguments = parser.parse_args()
    # The last processors, because the first ones serve interrupts.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-arguments.threads :])
    torch.set_num_threads(arguments.threads)
    # Processor time excludes other processes; several threads need wall-clock time.
    clock = time.process_time if arguments.threads == 1 else time.perf_counter
    systems, notes = all_systems(arguments.library, arguments.threads)
    rows = []
    for work in QUICK if arguments.quick else FULL:
        print(f"{arguments.threads} thread(s): {work.name}", file=sys.stderr)
        # Entered once, because entering costs as much as a small call.
        with torch.inference_mode(not work.kind.endswith("gradient")):
            rows.append(measure(systems, work, arguments.repetitions, clock, notes))
    target = systems[0].library.target
    print(json.dumps({"threads": arguments.threads, "target": target, "rows": rows, "notes": notes}))


if __name__ == "__main__":
    main()
