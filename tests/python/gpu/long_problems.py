"""Generated problems by the thousand, and larger."""

import problem_sets
import pytest


@pytest.mark.parametrize("name, seed, count, work", [
    ("forward", 11, 2000, 20_000), ("decode", 12, 800, 20_000), ("backward", 14, 1000, 20_000), ("large", 13, 30, 1_000_000),
])  # fmt: skip
def test_they_are_within_budget(name, seed, count, work):
    problems = getattr(problem_sets, name, problem_sets.forward)
    assert problem_sets.failures(problems(seed=seed, count=count, work=work))[1] == []
