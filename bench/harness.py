"""Times systems in turns and compares them: shared by the benchmarks of CPUs and of GPUs."""

import argparse
import datetime
import json
import random
import statistics
import time

ISENTROPE = "isentrope"
LSE_ONLY = ISENTROPE + ", lse alone"


def first_line(error):
    return (str(error) or repr(error)).splitlines()[0]


def prepared(systems, work, tensors, notes):
    """Returns the runs of the systems by name, after one call of each; notes say why others did not run."""
    runs = {}
    for system in systems:
        try:
            if run := system.prepare(work, *tensors):
                run()
                runs[system.name] = run
        except Exception as error:
            notes[f"{system.name}, {work.name}"] = first_line(error)
    return runs


def timed(runs, repetitions, seconds_of, errors_of, rest=lambda name: None):
    """Returns times and errors of the runs, which alternate, so that disturbances affect all of them alike.

    seconds_of(name): the seconds of a call and its output. errors_of(name, output): the first output's errors."""
    times, errors = {name: [] for name in runs}, {}
    for repetition in range(repetitions):
        for name in runs:
            seconds, output = seconds_of(name)
            times[name].append(seconds)
            rest(name)
            if repetition == 0:
                errors[name] = errors_of(name, output)
            del output
    return [
        {"name": name, "seconds": statistics.median(seconds), "repetitions": seconds, **errors[name]}
        for name, seconds in times.items()
    ]


def row_of(work, systems):
    return {"work": work.as_json(), "flops": work.flops, "bytes": work.bytes, "systems": systems}


def streams(row):
    """Returns whether memory limits the work: its rate is then in bytes, and not in operations."""
    return row["work"]["kind"] == "decode"


def cost_over(row, name):
    """Returns Isentrope's time over that of a system of its row; None if that one did not run."""
    seconds = {system["name"]: system["seconds"] for system in row["systems"]}
    return seconds[ISENTROPE] / seconds[name] if name in seconds else None


def add_rates(row, limit):
    """Adds the rate of each system, the ratio to the best peer and the fraction of the limit, if there is one."""
    for system in row["systems"]:
        system["rate"] = row["bytes" if streams(row) else "flops"] / system["seconds"]
    isentrope = next(system for system in row["systems"] if system["name"] == ISENTROPE)
    peers = [system for system in row["systems"] if not system["name"].startswith(ISENTROPE)]
    best = max(peers, key=lambda system: system["rate"], default=isentrope)
    cost = cost_over(row, LSE_ONLY)
    return row | {
        "limit": limit, "best_peer": best["name"], "ratio": isentrope["rate"] / best["rate"],
        "of_limit": isentrope["rate"] / limit if limit else None, "statistics_cost": None if cost is None else cost - 1,
    }  # fmt: skip


def record_of(path, about):
    """Returns the record of a file, a new one if there is none. Raises SystemExit if it is about another machine or setting."""
    record = json.loads(path.read_text()) if path.exists() else about | {"date": datetime.date.today().isoformat(), "rows": []}
    if any(record[name] != value for name, value in about.items()):
        raise SystemExit(f"[bench] the record must be one of {about}; got {path}")
    return record


def processor_times(calls, rounds):
    """Returns the seconds of the processor that each call takes, round by round. In a round the calls take turns in random order."""
    times, order, generator = {name: [] for name in calls}, list(calls), random.Random(0)
    for round_ in range(rounds + 1):
        generator.shuffle(order)
        for name in order:
            begin = time.process_time()
            calls[name]()
            if round_ > 0:  # the first round warms up
                times[name].append(time.process_time() - begin)
    return times


def print_rounds(description, measure, table_of, rounds):
    """Prints what measure(rounds) returns on one thread, as a table or as JSON, as the command line asks."""
    import torch  # here, because bench/cpu/run.py runs without it

    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"calls of each kind ({rounds})")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    measured = measure(arguments.rounds)
    print(json.dumps(measured) if arguments.json else "\n".join(table_of(measured)))
