"""Numbers with the arithmetic of a device: lines that failed on one, and a few problems, are right in spite of it."""

import ast
from pathlib import Path

import device_arithmetic
import problem_sets
import pytest
import torch
import triton
import triton.language as tl
from device_arithmetic import contracted, like_a_device

import isentrope.gpu
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


@triton.jit
def approximations(x, to, MASKED: tl.constexpr):
    number = tl.arange(0, 4)
    loaded = tl.load(x + number)
    tl.store(to + number, tl.exp2(loaded))
    tl.store(to + 4 + number, loaded / 3.0)
    tl.store(to + 8 + number, loaded / 4.0)
    if MASKED:
        tl.store(to + 12 + number, tl.load(x + number, mask=number < 2))
    else:
        tl.store(to + 12 + number, tl.load(x + number, mask=number < 2, other=0.0))


@triton.jit
def remainders(x, to, SIGNED: tl.constexpr):
    number = tl.load(x)
    if SIGNED:
        tl.store(to, number % 4 + 0)
    else:
        tl.store(to, number % 4)


def test_functions_are_approximate_and_masked_loads_read_garbage():
    x, to = torch.tensor([-130.0, -3.0, 0.3, 7.0]), torch.zeros(16)
    with like_a_device():
        approximations[(1,)](x, to, True)
    assert to[:2].tolist() == [0, 0.125] and 0 < abs(to[2].double() / 2 ** x[2].double() - 1) < 2.0**-22
    assert (to[4:8] != x / 3).any() and torch.equal(to[8:12], x / 4)
    assert to[12:14].tolist() == x[:2].tolist() and to[14:].isnan().all()
    with like_a_device():
        approximations[(1,)](x, to, False)
    assert to[14:].tolist() == [0, 0]


def test_masked_loads_name_another_value():
    for file in (Path(isentrope.gpu.__file__).parent / "kernels").glob("*.py"):
        calls = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))
        for call in calls:
            names = {keyword.arg for keyword in call.keywords}
            if ast.unparse(call.func) == "tl.load" and "mask" in names:
                assert "other" in names, f"{file.name}:{call.lineno}"


def test_division_of_negative_integers_is_refused_unless_it_is_meant(monkeypatch):
    monkeypatch.setattr(device_arithmetic, "SIGNED", {"tl.store(to, number % 4 + 0)"})
    to = torch.zeros(1, dtype=torch.int32)
    with like_a_device():
        remainders[(1,)](torch.tensor([6]), to, False)
        assert to.item() == 2
        remainders[(1,)](torch.tensor([-6]), to, True)
        assert to.item() == -2
        with pytest.raises(Exception, match="division of negative integers: tl.store"):
            remainders[(1,)](torch.tensor([-6]), to, False)


@pytest.mark.parametrize("line", [*SMALL, *(pytest.param(line, marks=pytest.mark.long) for line in LARGE)])
def test_lines_that_failed_on_a_device_pass(line):
    with like_a_device():
        assert problem_sets.failures(iter([Problem.of_line(line)])) == (1, [])


@pytest.mark.parametrize("problems", [problem_sets.forward, problem_sets.decode, problem_sets.backward])
def test_a_few_problems_are_within_budget(problems):
    with like_a_device():
        passed, wrong = problem_sets.failures(problems(seed=9, count=8, work=4000))
    assert not wrong and passed >= 5
