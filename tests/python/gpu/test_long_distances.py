"""Distances of long causal rows, which tiles count from their last keys, are exact near the row and far away."""

import pytest
import torch

from isentrope._core.call import call_of
from isentrope._core.library import BITS
from isentrope.gpu import launch

ROWS, DIM, UNIT = 32, 16, 2**-24
# Decrease of logits for each key farther back: weights on every second key, and on all of them.
SLOPES = (1.0, 0.25, 2**-4, 2**-6, 2**-8, 2**-10, 2**-12, 0.0)


@pytest.mark.parametrize("keys", [2048, pytest.param(8192, marks=pytest.mark.long)])
def test_the_distance_of_a_long_row(keys):
    key, position = torch.arange(keys), torch.arange(keys - ROWS, keys)[:, None]
    k, q = torch.zeros(1, 1, keys, DIM), torch.zeros(1, len(SLOPES), ROWS, DIM)
    # One head for each slope; the logit of key 64 a + b is slope (64 a + b), with exact products.
    k[..., 0], k[..., 1] = key // 64, key % 64
    q[..., 0], q[..., 1] = (torch.tensor(SLOPES)[:, None] * step for step in (64, 1))
    q, k = q.half(), k.half()
    _, statistics, _ = launch.attention(*call_of(q, k, k, causal=True, rule="constant(scale=1)"), BITS["distance"])

    logits = (q.double() @ k.double().mT)[0]
    away = (position - key).double()
    p = logits.masked_fill(away < 0, float("-inf")).softmax(-1)
    distance = (p * away.abs()).sum(-1, keepdim=True)
    spread = (p * (away.abs() - distance).abs()).sum(-1)
    # The budget of docs/contributors/numerics.md, without its part for cancelling sums.
    chain = min(keys, 256) + keys / 256 + 4
    of_logits = torch.expm1(2 * (DIM + 4) * UNIT * logits.amax(-1)) * (spread + UNIT)
    budget = of_logits + 2 * (2.2 + chain) * UNIT * distance[..., 0]
    assert ((statistics[0, 0].double() - distance[..., 0]).abs() <= budget).all()
