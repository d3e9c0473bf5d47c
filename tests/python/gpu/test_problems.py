"""Generated problems in Triton's interpreter, against the float64 reference."""

import itertools

import problem_sets
import pytest

WORK = 8000  # small enough for the interpreter, with several tiles and remainders
LONG = [(problem_sets.forward, 5, 470, 400), (problem_sets.decode, 6, 120, 100), (problem_sets.backward, 7, 225, 200)]


@pytest.mark.parametrize("problems, seed, count, least", [
    *((problems, 8, 12, 8) for problems in (problem_sets.forward, problem_sets.decode, problem_sets.backward)),
    *(pytest.param(*one, marks=pytest.mark.long) for one in LONG),
])  # fmt: skip
def test_they_are_within_budget(problems, seed, count, least):
    passed, wrong = problem_sets.failures(problems(seed=seed, count=count, work=WORK))
    assert not wrong and passed >= least


@pytest.mark.parametrize("line", [
    # A sink whose weight is below the last digit of the keys' weights, so that it cannot be computed as their complement.
    "shape=1x2:1x15x32x7:4 mask=causal:top_left,offset=3:1 rule=scaled(gain=[2.5,3.2]) sink=1 bwd=1 scale=100 seed=1539",
    # Dropout with a factor of 10, which would take weights out of the range of float16 if it were applied near its limit.
    *(pytest.param(f"dt={dtype} shape=2x4:2x33x70x16:24 mask={mask} dropout=0.9 dropout_seed=7000000011 bwd=1 seed=2", marks=pytest.mark.long)
      for dtype, mask in itertools.product(("f32", "f16"), ("offset=30:2", "causal:bottom_right"))),
    # Saturated soft-caps of infinite scores, whose slope is 0, beside a hidden key and a missing row, whose products are NaN.
    "shape=1x1x1x4x8 mask=chunk=1 cap=0.5 special=1 bwd=1 seed=35",
    "shape=1x2:1x3x5x8 cap=0.5 special=1 bwd=1 seed=38",
    # Packed queries, each sequence a decode step.
    *(f"shape=1x6:2x42x33x16 {words} rule=log_length pages=8 sequences=3 seed=1"
      for words in ("mask=causal:bottom_right", "mask=window=6:2", "mask=causal:bottom_right sink=1 cap=3")),
])  # fmt: skip
def test_what_is_hard_is_within_budget(line):
    assert problem_sets.failures(map(problem_sets.Problem.of_line, [line])) == (1, [])
