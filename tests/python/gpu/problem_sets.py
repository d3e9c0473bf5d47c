"""Sets of conformance problems that the interpreter completes in time, and their verdicts."""

from __future__ import annotations

from collections.abc import Iterator

from isentrope.gpu.problems import Problem

_OF_A_DECODE_STEP = ("dt", "shape", "rule", "cap", "sink", "special", "scale", "seed")


def forward(seed: int, count: int, work: int) -> Iterator[Problem]:
    """Yields generated problems without a cache or a backward pass."""
    return _first(count, (_without(Problem.generated(seed, i, work), "bwd") for i in _forever()))


def backward(seed: int, count: int, work: int) -> Iterator[Problem]:
    return _first(count, (p for i in _forever() if (p := Problem.generated(seed, i, work)).number("backward")))


def decode(seed: int, count: int, work: int) -> Iterator[Problem]:
    """Yields them as steps over a paged cache: causal masks and windows only, and pages of 1 to 40 keys. The queries of a
    batch of 1 are those of three sequences."""
    return _first(count, (_paged(Problem.generated(seed, i, work).line, i) for i in _forever()))


def _forever() -> Iterator[int]:
    i = 0
    while True:
        yield i
        i += 1


def _first(count: int, problems: Iterator[Problem | None]) -> Iterator[Problem]:
    taken = 0
    for problem in problems:
        if problem is None or problem.unsupported:
            continue
        yield problem
        taken += 1
        if taken == count:
            return


def _without(problem: Problem, name: str) -> Problem | None:
    if "pages=" in problem.line:
        return None
    fields = [field for field in problem.line.split(" ") if not field.startswith(f"{name}=")]
    return Problem.of_line(" ".join(fields))


def _paged(line: str, index: int) -> Problem | None:
    words = []
    for field in line.split(" "):
        name, _, value = field.partition("=")
        if name == "mask":
            masks = [part for part in value.split(",") if part.startswith(("causal", "window"))]
            words += ["mask=" + ",".join(masks)] * bool(masks)
        elif name in _OF_A_DECODE_STEP:
            words.append(field)
    extents = [int(x.split(":")[0]) for x in next(f for f in words if f.startswith("shape="))[6:].split("x")]
    if 0 in extents:
        return None
    packed = ["sequences=3"] * (extents[0] == 1)
    return Problem.of_line(" ".join([*words, f"pages={1 + index * 7 % 40}", *packed]))


def failures(problems: Iterator[Problem]) -> tuple[int, list[str]]:
    """Returns the number of problems with an informative pass, and descriptions of failures."""
    passed, wrong = 0, []
    for problem in problems:
        problem.run()
        verdict = problem.verdict()
        passed += verdict["outcome"] == "PASSED"
        if verdict["outcome"] == "FAILED":
            worst = [verdict[name]["worst"] for name in ("forward", "backward") if name in verdict]
            wrong.append(f"{problem.line}: {worst}")
    return passed, wrong
