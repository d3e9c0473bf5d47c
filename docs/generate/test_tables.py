#!/usr/bin/env python3
"""Writes the tables of docs/contributors/tests.md, from what scripts/coverage, scripts/mutate and
`make test-peers` have recorded.

    docs/generate/test_tables.py [--check]      # --check: says whether the page is current, and fails where it is not
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

from marks import main, put

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "contributors/tests.md"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *escaped]]


def share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else ""


def coverage() -> list[str]:
    record = json.loads((DOCS / "results/coverage.json").read_text())
    whole = [sum(column) for column in zip(*record["folders"].values())]
    folders = record["folders"] | {"all": whole}
    rows = [[name, *map(str, counts), share(*counts)] for name, counts in folders.items()]
    reasons: dict[str, int] = defaultdict(int)
    for entry in record["unreached"]:
        reasons[entry["reason"]] += entry["branches"]
    why = [[reason, str(count)] for reason, count in sorted(reasons.items(), key=lambda item: -item[1])]
    return [*table(["folder", "taken", "branches", ""], rows), "", *table(["why no test takes it", "branches"], why)]


SURVIVED = {  # explanations of mutants that no test noticed, by the word in the record
    "elsewhere": "noticed by tests that `make mutants` does not run",
    "since": "noticed by tests written since",
    "slower": "the same numbers, at another cost",
    "same": "nothing that a caller could notice",
}


def mutants() -> list[str]:
    record = json.loads((DOCS / "results/mutants.json").read_text())
    by_test: dict[str, int] = defaultdict(int)
    survived = [mutant for mutant in record["mutants"] if not mutant["caught_by"]]
    for mutant in record["mutants"]:
        test = mutant["caught_by"]
        by_test[f"`{test.split('.')[0].split('/')[-1]}`" if test else SURVIVED[mutant["how"]]] += 1
    count = len(record["mutants"])
    head = f"{count - len(survived)} of {count} mutants of {record['commit'][:7]}, seed {record['seed']}, fail a test that " \
           f"`make mutants` runs; {len(record['did_not_compile'])} others did not compile."  # fmt: skip
    rows = [[name, str(mutants)] for name, mutants in sorted(by_test.items(), key=lambda item: -item[1])]
    shown = ("file", "code", "from", "to")
    left = [[*(f"`{mutant[name].strip()}`" for name in shown), mutant["reason"]] for mutant in survived]
    lines = [head, "", *table(["noticed first by", "mutants"], rows)]
    head_of_left = ["file", "line", "token", "changed into", "why no test that ran noticed"]
    return [*lines, "", *table(head_of_left, left)] if left else lines


def peers() -> list[str]:
    rows = []
    for judge in json.loads((DOCS / "results/peers.json").read_text()):
        reasons = "; ".join([*judge["differ"], *judge["left out"]])
        counts = judge["cases"], judge["agree"], sum(judge["differ"].values()), sum(judge["left out"].values())
        rows.append([judge["title"], *map(str, counts), reasons])
    return table(["judge", "cases", "agree", "differ", "left out", "why"], rows)


if __name__ == "__main__":
    text = PAGE.read_text()
    for name, lines in (("coverage", coverage()), ("peers", peers()), ("mutants", mutants())):
        text = put(text, name, lines)
    sys.exit(main({PAGE: text}))
