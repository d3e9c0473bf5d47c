#!/usr/bin/env python3
"""Computes attention cases published by other projects, and compares the results with theirs.

    judges.py FOLDER                    all judges; PYTHONPATH must have isentrope
    judges.py FOLDER onnx opinfo        some of them
    judges.py FOLDER --record FILE      also writes the counts into a record

Fails if a case differs, or if a judge has no cases.
Downloads are kept in FOLDER.
"""

import argparse
import collections
import importlib
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from case import record

JUDGES = ("onnx", "opinfo", "ggml", "llama", "modules", "keys", "curvlinops")


def counts_of(name: str, folder: Path) -> tuple[dict, list[str]]:
    """Returns the counts of one judge, and its failures as lines of text."""
    adapter = importlib.import_module(f"judge_{name}")
    begin, failures, left_out = time.monotonic(), [], collections.Counter()
    cases = agree = 0
    for case in adapter.cases(folder):
        cases += 1
        if case.left_out:
            left_out[case.left_out] += 1
            continue
        try:
            case.check()
        except (AssertionError, RuntimeError, TypeError, ValueError) as error:
            failures.append(f"{name}: {case.name}: {str(error).strip().splitlines()[0] if str(error) else type(error)}")
            continue
        agree += 1
    if agree == 0:
        failures.append(f"{name}: no case was computed")
    counts = {
        "name": name, "title": adapter.TITLE, "cases": cases, "agree": agree, "differ": {}, "left out": dict(left_out),
        "failed": len(failures),
    }  # fmt: skip
    print(f"{adapter.TITLE}: {cases} cases, {agree} agree, {sum(left_out.values())} left out, {len(failures)} failures, "
          f"{time.monotonic() - begin:.0f} s", flush=True)  # fmt: skip
    for reason, count in left_out.items():
        print(f"  {count} left out: {reason}")
    return counts, failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("judges", nargs="*", metavar="JUDGE", help=f"of {', '.join(JUDGES)}; all of them by default")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the counts of these judges there")
    arguments = parser.parse_args()
    if unknown := set(arguments.judges) - set(JUDGES):
        parser.error(f"a judge must be one of {', '.join(JUDGES)}; got {', '.join(sorted(unknown))}")
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    results = [counts_of(name, folder) for name in arguments.judges or JUDGES]
    for failure in (text for _, failures in results for text in failures):
        print(failure)
    for counts, _ in results if arguments.record else ():
        record(arguments.record, counts)
    return 1 if any(failures for _, failures in results) else 0


if __name__ == "__main__":
    sys.exit(main())
