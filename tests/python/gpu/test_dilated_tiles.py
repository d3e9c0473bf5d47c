"""Tiles of dilated windows that no row sees are skipped, forward and backward: visited tiles are counted."""

import importlib

import pytest
import torch

import isentrope
from isentrope.gpu import plan

LENGTH, WINDOW = 300, 250
TILE = plan.tiles("forward", plan.Chip("interpreter", 4), torch.float32, 16)


def seen_tiles(dilation):
    """Returns the tiles of a causal window in which some row sees some key."""
    away = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    seen = (away >= 0) & (away <= WINDOW) & (away % dilation == 0)
    rows, keys = (-(-LENGTH // size) for size in (TILE.rows, TILE.keys))
    padded = torch.zeros(rows * TILE.rows, keys * TILE.keys, dtype=torch.bool)
    padded[:LENGTH, :LENGTH] = seen
    return int(padded.view(rows, TILE.rows, keys, TILE.keys).any(3).any(1).sum())


@pytest.fixture
def visits(monkeypatch):
    counts = {}

    def count(name, function):
        module = importlib.import_module(f"isentrope.gpu.kernels.{name}")
        visit = getattr(module, function)

        def counted(*arguments, **options):
            counts[name] = counts.get(name, 0) + 1
            return visit(*arguments, **options)

        monkeypatch.setattr(module, function, counted)

    for name in ("forward", "query_gradient", "largest_key"):
        count(name, "process_key_tile")
    count("key_gradient", "process_query_block")
    return counts


@pytest.mark.parametrize("dilation", [20, pytest.param(100, marks=pytest.mark.long)])
def test_tiles_that_no_row_sees_are_not_visited(dilation, visits):
    q, k, v = torch.randn(3, 1, 1, LENGTH, 16).unbind(0)
    masks = {"causal": True, "window_size": (WINDOW, -1), "dilation": dilation}
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    output, statistics = isentrope.attention(*leaves, return_stats=True, **masks)
    (output.sum() + statistics.max_probability.sum()).backward()
    assert visits == dict.fromkeys(("forward", "query_gradient", "largest_key", "key_gradient"), seen_tiles(dilation))
