"""The problems that a device runs first cover every pair of features."""

import os
import subprocess
import sys

import problem_sets
import pytest

from isentrope.gpu import pairwise
from isentrope.gpu.problems import Problem


def test_every_pair_is_covered():
    found = pairwise.choices()
    covered = set().union(*map(pairwise.pairs_of, found))
    assert pairwise.pairs() <= covered
    # One of nearly every value with each other one: what no problem may have is little.
    values = [(name, value) for name, values in pairwise.FACTORS.items() for value in values]
    all_pairs = sum(a[0] < b[0] for a in values for b in values)
    assert 0.9 * all_pairs < len(pairwise.pairs()) < all_pairs
    assert pairwise.choices() == found and pairwise.choices(2) != found


def test_lines_are_problems_that_the_kernels_take():
    lines = pairwise.problem_lines()
    assert len(set(lines)) == len(lines) and 150 <= len(lines) <= 250
    assert lines[: len(pairwise.ONCE_FAILED)] == pairwise.ONCE_FAILED
    # Their references take time: a third of them here, all of them in the long run.
    assert not any(Problem.of_line(line).unsupported for line in pairwise.problem_lines(coverings=1))


def test_each_value_stands_in_its_line():
    """A line without its feature would cover pairs in name only."""
    for choice in pairwise.choices():
        line = pairwise.line_of(choice, 1)
        assert all(value in line for value in choice.values()), line


@pytest.mark.parametrize("statistic", ["entropy", "support"])
def test_a_statistic_alone_is_judged_with_its_gradient(statistic):
    problem = Problem.of_line(f"shape=1x1x3x5x4 mask=causal:bottom_right bwd=1 stats={statistic}")
    problem.run()
    found = problem.verdict()
    assert found["outcome"] == "PASSED"
    assert found["forward"]["of_result"].keys() == {"output", statistic} and found["backward"]["of_result"]["dq"] > 0


@pytest.mark.long
def test_they_are_within_budget():
    lines = pairwise.problem_lines()
    passed, wrong = problem_sets.failures(Problem.of_line(line) for line in lines)
    assert not wrong and passed >= 0.8 * len(lines)


@pytest.mark.long
def test_every_process_has_the_same_lines():
    """A second run of the carried folder continues from the lines of the first."""
    code = "from isentrope.gpu.pairwise import problem_lines; print(problem_lines(coverings=1))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
