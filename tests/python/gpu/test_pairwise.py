"""The problems that a device runs first cover every pair of features."""

import os
import subprocess
import sys

import problem_sets
import pytest
import torch

from isentrope.gpu import pairwise, plan
from isentrope.gpu.problems import Problem

# Rows and keys of a device's problems, and fewer for the interpreter, which takes seconds for each thousand keys.
FEWER = {"1x4100": "1x300", "71x300": "40x165", "140x1030": "70x101"}


def interpreted_lines():
    """Returns the problems with sizes for the interpreter; they cover the same pairs."""
    lines = pairwise.problem_lines()
    for size, fewer in FEWER.items():
        lines = [line.replace(f"x{size}x", f"x{fewer}x") for line in lines]
    return lines


def test_every_pair_is_covered():
    choices = pairwise.choices()
    covered = set().union(*map(pairwise.pairs_of, choices))
    assert pairwise.pairs() <= covered
    # One of nearly every value with each other one: what no problem may have is little.
    values = [(name, value) for name, values in pairwise.FACTORS.items() for value in values]
    all_pairs = sum(a[0] < b[0] for a in values for b in values)
    assert 0.9 * all_pairs < len(pairwise.pairs()) < all_pairs
    assert pairwise.choices() == choices and pairwise.choices(2) != choices


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
    verdict = problem.verdict()
    assert verdict["outcome"] == "PASSED"
    assert verdict["forward"]["of_result"].keys() == {"output", statistic} and verdict["backward"]["of_result"]["dq"] > 0


def test_fewer_rows_and_keys_are_still_several_tiles_with_remainders_and_several_shares():
    chip = plan.Chip("interpreter", 4)
    for size, fewer in FEWER.items():
        assert size in pairwise.FACTORS["size"] and fewer not in pairwise.FACTORS["size"]
        queries, keys = map(int, fewer.split("x"))
        tiles = plan.tiles("few rows" if queries == 1 else "forward", chip, torch.float32, 64)
        assert keys > 3 * tiles.keys and keys % tiles.keys
        if queries == 1:
            assert plan.shares_of(chip, 1, keys, tiles.keys, tiles.occupancy) > 1
        else:
            assert queries > tiles.rows and queries % tiles.rows
    lines = interpreted_lines()
    assert len(set(lines)) == len(pairwise.problem_lines())
    assert not any(f"x{size}x" in line for line in lines for size in FEWER)


@pytest.mark.long
def test_they_are_within_budget():
    lines = interpreted_lines()
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
