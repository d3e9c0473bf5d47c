#!/usr/bin/env python3
"""Compares the instructions that calls, rules and solvers execute with recorded counts, which noise does not affect.

    instruction_counts.py ONE_CALL COMPILER             # fails when a count is off by more than the tolerance
    instruction_counts.py ONE_CALL COMPILER --record    # writes instruction_counts.json

Counts are those of the AVX2 kernels, because valgrind does not support AVX-512, and of one compiler. With another
compiler the test is skipped.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

RECORD = Path(__file__).parents[2] / "data/instruction_counts.json"
SKIPPED = 77
TOLERANCE = 0.03  # a lower count must be recorded as well, so that a later loss is noticed


def instructions(program, line):
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        command += [f"--toggle-collect=isentrope::{name}" for name in ("check::PreparedCall::run()", "counted_*")]
        result = subprocess.run([*command, program, line], check=True, capture_output=True, text=True)
    return int(re.search(r"Collected : (\d+)", result.stderr)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("compiler")
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    record = json.loads(RECORD.read_text())
    if not arguments.record and record["compiler"] != arguments.compiler:
        print(f"recorded with {record['compiler']}, built with {arguments.compiler}")
        return SKIPPED
    counts = {line: instructions(arguments.program, line) for line in record["counts"]}
    if arguments.record:
        RECORD.write_text(json.dumps({"compiler": arguments.compiler, "counts": counts}, indent=2) + "\n")
        return 0
    failures = 0
    for line, count in counts.items():
        change = count / record["counts"][line] - 1
        off = abs(change) > TOLERANCE
        failures += off
        print(f"{'CHANGED' if off else 'as recorded'}: {line}: {count} instructions, {change:+.1%}")
    if failures:
        print("If this is meant, record anew: " + " ".join([*sys.argv, "--record"]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
