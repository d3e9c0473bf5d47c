"""isentrope check --backend gpu as a separate process, interpreted without a GPU."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from isentrope.gpu.pairwise import ONCE_FAILED

LINE = "shape=1x2:1x5x9x16 mask=causal:bottom_right bwd=1"
MODULE = (sys.executable, "-m", "isentrope.commands.check")


def check(*arguments, command=MODULE, **environment):
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, env=os.environ | environment)


@pytest.mark.long
def test_a_line_is_judged():
    process = check(LINE, "--json")
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    assert result["summary"] == {"passed": 1, "failed": 0, "mistrusted": 0, "skipped": 0}
    (verdict,) = result["verdicts"]
    assert verdict["problem"].startswith("shape=1x2:1x5x9x16") and verdict["outcome"] == "PASSED"
    for results in ({"output", "lse", "entropy"}, {"dq", "dk", "dv"}):
        assert results <= result["error_over_budget"].keys()
    (ratio,) = result["error_over_budget"]["output"].values()
    assert 0 < ratio["maximum"] <= 1


@pytest.mark.long
def test_what_is_no_problem_is_an_error():
    process = check(LINE, "shape=1x2x5x9x16 mask=casual", "--json")
    assert process.returncode == 2 and process.stdout == "" and process.stderr.startswith("isentrope check: ")
    assert "Traceback" not in process.stderr


def test_the_command_line_finds_it(tmp_path):
    """The program is found next to it or on PATH, where pip puts it."""
    program = tmp_path / "isentrope-check-gpu"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m isentrope.commands.check "$@"\n')
    program.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ("isentrope", "check", "--backend", "gpu")
    process = check(LINE, "--quiet", command=command, **path)
    assert process.returncode == 0 and process.stdout == "1 passed, 0 failed, 0 mistrusted, 0 skipped\n", process.stderr
    assert check("a problem", command=command, **path).returncode == 2


def test_without_the_package_the_command_line_says_how_to_come_by_it(tmp_path):
    """Its programs are neither next to it nor on PATH."""
    alone = shutil.copy(shutil.which("isentrope"), tmp_path)
    process = check(LINE, command=(alone, "check", "--backend", "gpu"), PATH="")
    assert process.returncode == 2 and "no program isentrope-check-gpu; it comes with the Python package" in process.stderr


@pytest.mark.long
def test_pairs_of_features_come_with_the_lines_that_failed_first():
    """Until the first verdict is told: all of them take minutes here."""
    command = subprocess.Popen([*MODULE, "--pairwise"], stdout=subprocess.PIPE, text=True)
    try:
        outcome, target, problem = command.stdout.readline().split(maxsplit=2)
    finally:
        command.kill()
        command.communicate()
    assert (outcome, target) == ("PASSED", "interpreter") and problem.startswith(ONCE_FAILED[0])
