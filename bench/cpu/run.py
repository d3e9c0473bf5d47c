#!/usr/bin/env python3
"""Benchmarks Isentrope and its peers on this machine: a table, bench.json and report.html.

    bench/cpu/run.py PROGRAM LIBRARY PACKAGE            # make bench: isentrope, libisentrope.so, the package's folder
    bench/cpu/run.py PROGRAM LIBRARY PACKAGE --quick    # make bench-quick: fewer shapes, one thread

Peers are installed in a separate virtual environment at the first run. Run it on an otherwise idle machine.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
from bench.harness import ISENTROPE, add_rates, cost_over, streams
from scripts.json_rows import write_rows

HERE = Path(__file__).parent
ZENTORCH = "zentorch==2.14.0.1"


def environment(folder):
    """Returns the Python interpreter with the peers, installing them first."""
    python, requirements = folder / "bin/python", HERE / "requirements.txt"
    installed = folder / "installed.txt"
    if installed.exists() and installed.read_text() == requirements.read_text():
        return python
    print(f"[bench] installing the peers into {folder}", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(requirements)], check=True)
    if "AuthenticAMD" in Path("/proc/cpuinfo").read_text():
        subprocess.run([*pip, ZENTORCH], check=False)  # an optional peer: measure.py reports when it is missing
    installed.write_text(requirements.read_text())
    return python


def name_of_cpu():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def limits_of(program):
    last = str(max(os.sched_getaffinity(0)))
    command = ["taskset", "-c", last, str(program), "bench", "--limits", "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def printed_by(program, python, arguments, *options):
    """Returns what a program that times the package prints."""
    command = [str(python), str(HERE / program), *map(str, options)]
    package = os.environ | {"PYTHONPATH": str(arguments.package)}
    print(program, file=sys.stderr)
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=package).stdout)


def rated(run, limits):
    """Returns the rows of a run with their rates, and the time of an 8-bit cache as a part of Isentrope's own."""
    target = next(t for t in limits["targets"] if t["target"] == run["target"])

    def limit_of(row):
        # The memory bandwidth of one thread is no limit for several.
        if streams(row):
            return limits["memory_read"] if run["threads"] == 1 else None
        products = "bf16_flops" if row["work"]["dtype"] == "bf16" and target["bf16_flops"] > 0 else "flops"
        return run["threads"] * target[products]

    return [add_rates(row, limit_of(row)) | {"eight_bits": cost_over(row, ISENTROPE + ", 8 bits")} for row in run["rows"]]


def print_table(result):
    for run in result["runs"]:
        print(f"\n{run['threads']} thread(s), {run['target']}: GFLOP/s, decode GB/s of cache")
        head = ("work", "isentrope", "best peer", "", "ratio", "limit", "error", "peer's", "statistics", "8 bits")
        form = "{:<42} {:>9} {:>9} {:<13} {:>6} {:>6} {:>8} {:>8} {:>10} {:>6}"
        print(form.format(*head))
        for row in run["rows"]:
            isentrope = next(s for s in row["systems"] if s["name"] == ISENTROPE)
            best = next(s for s in row["systems"] if s["name"] == row["best_peer"])
            percent = ["" if x is None else f"{x:.1%}" for x in (row["of_limit"], row["statistics_cost"])]
            rates = (f"{isentrope['rate'] / 1e9:.1f}", f"{best['rate'] / 1e9:.1f}")
            errors = (f"{isentrope['error']:.1e}", f"{best['error']:.1e}")
            ratio = f"{row['ratio']:.2f}"
            eight_bits = f"{row['eight_bits']:.2f}" if row["eight_bits"] else ""
            name = row["work"]["name"]
            print(form.format(name, *rates, best["name"], ratio, percent[0], *errors, percent[1], eight_bits))
        for name, why in run["notes"].items():
            print(f"  without {name}: {why}")
    print("\ntraining step, one thread, over one that nothing watches")
    for row in result["training_step"]["rows"]:
        low, high = row["quartiles"]
        print(f"{row['watcher']:<8} {row['function']:<10} {row['ratio']:.3f}   quartiles {low:.3f} to {high:.3f}")
    print("\nderivatives, one thread: jvp over forward, second order over gradient, torch's MATH over each")
    for row in result.get("derivatives", {"rows": ()})["rows"]:
        print(f"{row['work']:<32}", *(f"{x['ratio']:8.2f}" for name, x in row.items() if name != "work"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("library", type=Path)
    parser.add_argument("package", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("results/bench"))
    parser.add_argument("--environment", type=Path, default=Path("build/bench/venv"))
    arguments = parser.parse_args()
    python = environment(arguments.environment)
    processors = len(os.sched_getaffinity(0))
    result = {
        "kind": "bench",
        "machine": name_of_cpu(),
        "processors": processors,
        "date": datetime.date.today().isoformat(),
        "limits": limits_of(arguments.program),
        "runs": [],
    }
    for threads in [1] if arguments.quick or processors == 1 else [1, processors]:
        quick = ["--quick"] * arguments.quick
        run = printed_by("measure.py", python, arguments, arguments.library, "--threads", threads, *quick)
        result["runs"].append(run | {"rows": rated(run, result["limits"])})
    origin = {key: result[key] for key in ("machine", "date")}
    result["training_step"] = origin | printed_by("watched_step.py", python, arguments, "--json", "--rounds", 20 if arguments.quick else 100)
    if not arguments.quick:
        result["derivatives"] = origin | printed_by("derivatives.py", python, arguments, "--json", "--rounds", 5)
    print_table(result)
    arguments.output.mkdir(parents=True, exist_ok=True)
    write_rows(arguments.output / "bench.json", result, 4)
    subprocess.run([str(arguments.program), "report", str(arguments.output / "bench.json")], check=True)
    print(f"\nwrote {arguments.output}/bench.json and report.html")


if __name__ == "__main__":
    main()
