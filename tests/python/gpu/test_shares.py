"""Decode steps with split keys: shares are merged to the same bits, whatever order their programs run in."""

import random

import pytest
import torch
from triton.runtime import interpreter

import isentrope
from isentrope.gpu import plan

STATISTICS = ("lse", "entropy", "collision", "variance", "max_logit", "support")


@pytest.fixture
def order(monkeypatch):
    """Runs the programs of a launch in an order given by a seed. Returns the function that sets the seed."""
    builder = interpreter.interpreter_builder
    place = builder.set_grid_idx
    seed = None

    def shuffled(x, y, z):
        extent = builder.grid_dim[2]
        if seed is not None and extent > 1:
            z = random.Random(seed).sample(range(extent), extent)[z]
        place(x, y, z)

    def use(number):
        nonlocal seed
        seed = number

    monkeypatch.setattr(builder, "set_grid_idx", shuffled)
    return use


def step(dtype, queries=1, nan_at=None):
    """Returns output and statistics of a decode step over 200 keys in pages of 16, in three shares."""
    torch.manual_seed(4)
    q, (k, v) = torch.randn(1, 2, queries, 16).to(dtype), (torch.randn(30, 1, 16, 16).to(dtype) for _ in range(2))
    table = torch.randperm(30)[:13].view(1, 13).int()
    if nan_at is not None:
        v[table[:, nan_at // 16].long(), :, nan_at % 16] = float("nan")
    output, statistics = isentrope.decode(q, k, v, table, torch.tensor([200]), return_stats=STATISTICS)
    return output, *(getattr(statistics, name) for name in STATISTICS)


def same_bits(a, b):
    return all(torch.equal(x.nan_to_num(7.0), y.nan_to_num(7.0)) for x, y in zip(a, b))


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_programs_of_shares_may_run_in_any_order(order, dtype, queries):
    assert plan.shares_of(plan.chip_of(torch.device("cpu")), 1, 208, 16, 2) == 3
    expected = step(dtype, queries)
    for seed in range(3):
        order(seed)
        assert same_bits(step(dtype, queries), expected)


def test_repaired_shares_are_merged(order):
    """The last query sees a NaN value and earlier ones do not: programs with it run again."""
    expected = step(torch.float32, queries=3)
    for seed in (None, 1, 2):
        order(seed)
        got = step(torch.float32, queries=3, nan_at=199)
        assert same_bits([x[0, :, :2] for x in (got[0], *got[1:])], [x[0, :, :2] for x in (expected[0], *expected[1:])])
        assert not got[0][0, :, 2].isfinite().any()
