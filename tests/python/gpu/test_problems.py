"""Generated problems in Triton's interpreter, against the float64 reference."""

import problem_sets
import pytest

from isentrope.gpu.problems import Problem

WORK = 8000  # small enough for the interpreter, with several tiles and remainders


@pytest.mark.parametrize("problems", [problem_sets.forward, problem_sets.decode, problem_sets.backward])
def test_a_few_are_within_budget(problems):
    passed, wrong = problem_sets.failures(problems(seed=8, count=24, work=WORK))
    assert not wrong
    assert passed >= 16


@pytest.mark.long
def test_forward_is_within_budget():
    passed, wrong = problem_sets.failures(problem_sets.forward(seed=5, count=470, work=WORK))
    assert not wrong
    assert passed >= 400


@pytest.mark.long
def test_decode_is_within_budget():
    passed, wrong = problem_sets.failures(problem_sets.decode(seed=6, count=120, work=WORK))
    assert not wrong
    assert passed >= 100


@pytest.mark.long
def test_backward_is_within_budget():
    passed, wrong = problem_sets.failures(problem_sets.backward(seed=7, count=225, work=WORK))
    assert not wrong
    assert passed >= 200


def test_a_sink_that_hardly_counts_has_a_gradient():
    """Its weight is below the last digit of the keys' weights, so it cannot be computed as their complement."""
    line = "shape=1x2:1x15x32x7:4 mask=causal:top_left,offset=3:1 rule=scaled(gain=[2.5,3.2]) sink=1 bwd=1 scale=100 seed=1539"
    assert problem_sets.failures(iter([Problem.of_line(line)])) == (1, [])
