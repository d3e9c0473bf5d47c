"""Times every system on every piece of work, in one process, and prints JSON.

    measure.py LIBRARY --threads 1 [--quick]

Systems alternate, repetition by repetition, so that disturbances affect all of them alike.
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch

from errors import error_of
from systems import all_systems
from work import FULL, QUICK

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def tensors_of(work):
    torch.manual_seed(1)
    query = (work.batch, work.heads, work.queries, work.dim)
    key = (work.batch, work.key_heads, work.keys, work.dim)
    return [torch.randn(shape).to(DTYPES[work.dtype]) for shape in (query, key, key, query)]


def prepare(system, work, tensors, notes):
    try:
        run = system.prepare(work, *tensors)
        if run:
            run()
        return run
    except Exception as error:
        notes[f"{system.name}, {work.name}"] = str(error).splitlines()[0]
        return None


def seconds_of(run, inner, clock):
    start = clock()
    for _ in range(inner):
        output = run()
    return (clock() - start) / inner, output


def measure(systems, work, repetitions, clock, notes):
    tensors = tensors_of(work)
    runs = {system.name: prepare(system, work, tensors, notes) for system in systems}
    runs = {name: run for name, run in runs.items() if run}
    rest = {system.name: getattr(system, "rest", 0.01) for system in systems}
    inner = {name: max(1, int(0.02 / seconds_of(run, 1, clock)[0])) for name, run in runs.items()}
    times, errors = {name: [] for name in runs}, {}
    for repetition in range(repetitions):
        for name, run in runs.items():
            seconds, output = seconds_of(run, inner[name], clock)
            times[name].append(seconds)
            if clock is time.perf_counter:
                time.sleep(rest[name])
            if repetition == repetitions - 1:
                errors[name] = error_of(work, output, *tensors[:3])
    return {
        "work": work.as_json(),
        "flops": work.flops,
        "bytes": work.bytes,
        "systems": [
            {"name": name, "seconds": statistics.median(seconds), "repetitions": seconds, "error": errors[name]}
            for name, seconds in times.items()
        ],
    }


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
