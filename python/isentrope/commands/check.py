"""isentrope check --backend gpu: compares problems computed by the Triton kernels with the float64 reference.

They run on this machine's GPU, or in Triton's interpreter. Lines, budgets and output are those of `isentrope check`.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isentrope._core.files import read_text
from isentrope.commands.frame import Parser, command, described, put, whole_number


def _parser() -> Parser:
    parser = Parser(
        prog="isentrope check --backend gpu",
        description="Compares problems computed by the Triton kernels with the float64 reference, on the GPU of this machine. "
        "Without a GPU they run in Triton's interpreter and should be small.",
        epilog="example: isentrope check --backend gpu 'dt=bf16 shape=1x4:2x33x65x16 mask=causal:bottom_right bwd=1'. "
        "The window of query i is centred on key i + keys - queries, causal or not; with causal:top_left on key i. "
        "The exit status is 1 if a problem fails, and 2 if a line is not a problem.",
    )
    parser.add_argument("lines", nargs="*", metavar="LINE", help="a problem, as one argument")
    parser.add_argument("--backend", choices=["gpu"], default="gpu", help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help="file of problems, one per line; # begins a comment")
    parser.add_argument("--pairwise", action="store_true", help="the problems that a device should run first: every pair of features")
    parser.add_argument("--generate", type=whole_number(0, 10_000_000), default=0, help="number of problems to generate from --seed")
    parser.add_argument("--seed", type=whole_number(0, 2**63 - 1), default=1, help="seed of the generated problems (1)")
    parser.add_argument("--work", type=whole_number(1, 10**12), default=8000,
                        help="size of generated problems, in multiplications of a forward pass (8000)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON: verdicts, and the largest ratios")
    parser.add_argument("--quiet", action="store_true", help="show only problems that did not pass")
    return parser


def _device() -> str:
    """Returns the device of the problems. Triton chooses its interpreter when it is imported, which is later."""
    import torch

    for kind in ("cuda", "xpu"):
        if torch.get_device_module(kind).is_available():
            return kind
    os.environ["TRITON_INTERPRET"] = "1"
    return "cpu"


def _problems(arguments: argparse.Namespace) -> Iterator[Any]:
    from isentrope.gpu.pairwise import problem_lines
    from isentrope.gpu.problems import Problem

    lines = list(arguments.lines)
    if arguments.file is not None:
        text = (line.partition("#")[0].strip() for line in read_text(arguments.file).splitlines())
        lines += [line for line in text if line]
    if not (lines or arguments.pairwise or arguments.generate):
        raise ValueError("a problem LINE, --file, --pairwise or --generate must be given")
    # All problems that the user wrote are parsed before the first one runs.
    yield from [Problem.of_line(line) for line in lines]
    for line in problem_lines() if arguments.pairwise else ():
        yield Problem.of_line(line)
    for index in range(arguments.generate):
        yield Problem.generated(arguments.seed, index, arguments.work)


@contextlib.contextmanager
def _silent(device: str) -> Iterator[None]:
    """Suppresses numpy's warnings in the interpreter, which a GPU does not give."""
    if device != "cpu":
        yield
        return
    import numpy

    from isentrope.gpu.interpreter import speed_up

    speed_up()
    with numpy.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def _verdict_of(problem: Any, device: str) -> dict[str, Any]:
    if problem.unsupported:
        return {"problem": problem.line, "outcome": "SKIPPED", "reason": problem.unsupported}
    try:
        problem.run(device)
    except Exception as error:
        raise ValueError(f"{problem.line}: {described(error)}") from error
    return {"problem": problem.line, **problem.verdict()}


def _print(verdict: dict[str, Any], target: str) -> None:
    reason = f" ({verdict['reason']})" if verdict["reason"] else ""
    passes = [verdict[name] for name in ("forward", "backward") if name in verdict]
    # A ratio of null stands for infinity: a result is unexpectedly non-finite.
    worst = max(passes, key=lambda x: float("inf") if x["error_over_budget"] is None else x["error_over_budget"], default=None)
    detail = "" if worst is None else f"  error/budget {worst['error_over_budget'] or 0:.3g}: {worst['worst']}"
    put(f"{verdict['outcome']:<10} {target:<8} {verdict['problem']}{reason}{detail}")


def _check(arguments: argparse.Namespace) -> int:
    device = _device()
    target = "interpreter" if device == "cpu" else device
    counts: collections.Counter[str] = collections.Counter()
    shown: list[Any] = []
    most: dict[Any, float] = collections.defaultdict(float)
    with _silent(device):
        for problem in _problems(arguments):
            verdict = _verdict_of(problem, device)
            counts[verdict["outcome"]] += 1
            for name in ("forward", "backward"):
                for result, ratio in verdict.get(name, {}).pop("of_result", {}).items():
                    most[result] = max(most[result], float("inf") if ratio is None else ratio)
            if arguments.quiet and verdict["outcome"] == "PASSED":
                continue
            if arguments.json:
                shown.append(verdict | {"target": target})
            else:
                _print(verdict, target)
    summary = {name: counts[name.upper()] for name in ("passed", "failed", "mistrusted", "skipped")}
    if arguments.json:
        maxima = {name: {target: {"maximum": ratio}} for name, ratio in sorted(most.items())}
        put(json.dumps({"verdicts": shown, "summary": summary, "error_over_budget": maxima}, indent=1))
    else:
        put(", ".join(f"{count} {name}" for name, count in summary.items()))
    return 1 if summary["failed"] else 0


main = command("check", _parser, _check, __name__)
