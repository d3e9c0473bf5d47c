"""Generated problems by the thousand, and larger."""

import problem_sets


def test_forward():
    assert problem_sets.failures(problem_sets.forward(seed=11, count=2000, work=20_000))[1] == []


def test_decode():
    assert problem_sets.failures(problem_sets.decode(seed=12, count=800, work=20_000))[1] == []


def test_large():
    assert problem_sets.failures(problem_sets.forward(seed=13, count=30, work=1_000_000))[1] == []


def test_backward():
    assert problem_sets.failures(problem_sets.backward(seed=14, count=1000, work=20_000))[1] == []
