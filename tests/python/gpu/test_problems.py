"""Generated problems through Triton's interpreter, against the float64 reference."""

import problem_sets

# Small enough for the interpreter, and odd enough to have several tiles and a tail each.
WORK = 8000


def test_forward_is_within_budget():
    passed, wrong = problem_sets.failures(problem_sets.forward(seed=5, count=470, work=WORK))
    assert not wrong
    assert passed >= 400


def test_decode_is_within_budget():
    passed, wrong = problem_sets.failures(problem_sets.decode(seed=6, count=120, work=WORK))
    assert not wrong
    assert passed >= 100


def test_backward_is_within_budget():
    passed, wrong = problem_sets.failures(problem_sets.backward(seed=7, count=225, work=WORK))
    assert not wrong
    assert passed >= 200
