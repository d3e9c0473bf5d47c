"""Products contracted with sums, as a device's compiler does: lines that failed on one and pass without contraction."""

import problem_sets
import pytest
import torch
import triton
import triton.language as tl
from contraction import contracted

from isentrope.gpu.pairwise import ONCE_FAILED
from isentrope.gpu.problems import Problem

SMALL = [line for line in ONCE_FAILED if "1023" not in line and "1x12:3" not in line]
LARGE = [line for line in ONCE_FAILED if line not in SMALL]


@triton.jit
def differences(x, to):
    number = tl.load(x + tl.arange(0, 2))
    product = number * number
    tl.store(to + tl.arange(0, 2), product - tl.where(number > 0, product, 0.0))
    tl.store(to + 2 + tl.arange(0, 2), tl.expand_dims(product, 0).reshape(2) + number)


def test_a_product_is_not_rounded_before_it_is_added_to():
    x, to = torch.tensor([1 + 2.0**-12, 3.0]), torch.zeros(4)
    differences[(1,)](x, to)
    assert to[:2].tolist() == [0, 0]
    with contracted():
        differences[(1,)](x, to)
    assert to[:2].tolist() == [2.0**-24, 0]
    assert to[2].item() == (x[0].double() ** 2 + x[0].double()).float().item()


@pytest.mark.parametrize("line", [*SMALL, *(pytest.param(line, marks=pytest.mark.long) for line in LARGE)])
def test_lines_that_failed_on_a_device_pass(line):
    with contracted():
        assert problem_sets.failures(iter([Problem.of_line(line)])) == (1, [])


@pytest.mark.parametrize("problems", [problem_sets.forward, problem_sets.decode, problem_sets.backward])
def test_a_few_problems_are_within_budget(problems):
    with contracted():
        passed, wrong = problem_sets.failures(problems(seed=9, count=8, work=4000))
    assert not wrong and passed >= 5
