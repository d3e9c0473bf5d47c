"""Tables of what scripts/coverage, scripts/mutate, `make test-peers` and `isentrope check` have recorded."""

from collections import defaultdict

from text import record, table


def share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else ""


def coverage() -> list[str]:
    found = record("coverage")
    whole = [sum(column) for column in zip(*found["folders"].values())]
    folders = found["folders"] | {"all": whole}
    rows = [[name, *map(str, counts), share(*counts)] for name, counts in folders.items()]
    reasons: dict[str, int] = defaultdict(int)
    for entry in found["unreached"]:
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
    found = record("mutants")
    by_test: dict[str, int] = defaultdict(int)
    survived = [mutant for mutant in found["mutants"] if not mutant["caught_by"]]
    for mutant in found["mutants"]:
        test = mutant["caught_by"]
        by_test[f"`{test.split('.')[0].split('/')[-1]}`" if test else SURVIVED[mutant["how"]]] += 1
    count = len(found["mutants"])
    head = f"{count - len(survived)} of {count} mutants of {found['commit'][:7]}, seed {found['seed']}, fail a test that " \
           f"`make mutants` runs; {len(found['did_not_compile'])} others did not compile."  # fmt: skip
    rows = [[name, str(mutants)] for name, mutants in sorted(by_test.items(), key=lambda item: -item[1])]
    shown = ("file", "code", "from", "to")
    left = [[*(f"`{mutant[name].strip()}`" for name in shown), mutant["reason"]] for mutant in survived]
    lines = [head, "", *table(["noticed first by", "mutants"], rows)]
    head_of_left = ["file", "line", "token", "changed into", "why no test that ran noticed"]
    return [*lines, "", *table(head_of_left, left)] if left else lines


def peers() -> list[str]:
    rows = []
    for judge in record("peers"):
        reasons = "; ".join([*judge["differ"], *judge["left out"]])
        counts = judge["cases"], judge["agree"], sum(judge["differ"].values()), sum(judge["left out"].values())
        rows.append([judge["title"], *map(str, counts), reasons])
    return table(["judge", "cases", "agree", "differ", "left out", "why"], rows)


def maxima() -> list[str]:
    """The largest error over its budget by result and type, of all instruction sets."""
    rows: dict[str, dict[str, float]] = defaultdict(dict)
    for name, targets in sorted(record("numerics")["error_over_budget"].items()):
        result, _, dtype = name.rpartition(" ")
        rows[result][dtype] = max(ratios["maximum"] for ratios in targets.values())
    types = ("f32", "bf16", "f16")
    return table(["result", *types], [[result, *(f"{largest[dtype]:.2g}" for dtype in types)] for result, largest in rows.items()])


def tables() -> dict[tuple[str, str], list[str]]:
    page = "docs/contributors/tests.md"
    return {
        (page, "coverage"): coverage(),
        (page, "peers"): peers(),
        (page, "mutants"): mutants(),
        ("docs/contributors/numerics.md", "maxima"): maxima(),
    }
