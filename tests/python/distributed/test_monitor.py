"""Monitor readings gathered from all ranks."""

import torch
from ranks import run
from torch import nn

import isentrope
from isentrope.models.monitor_logs import gathered, merged


class Attention(nn.Module):
    def forward(self, x):
        heads = x.unflatten(-1, (4, 8)).transpose(1, 2)
        return isentrope.attention(heads, heads, heads, causal=True).transpose(1, 2).flatten(2)


def read(x):
    monitor = isentrope.Monitor(nn.Sequential(Attention()))
    with monitor.watch():
        monitor._model(x)
    return monitor.latest


def readings(rank):
    x = torch.randn(4, 20, 32)  # the same on every rank
    mine, every = read(x[2 * rank : 2 * rank + 2]), read(x)
    by_rank = gathered(mine)
    assert len(by_rank) == 2 and torch.equal(by_rank[rank].entropy, mine.entropy)
    torch.testing.assert_close(merged(by_rank)[:4], every[:4])
    assert merged(by_rank).names == every.names == ("0",)
    return by_rank[0].entropy.tolist()


def test_every_rank_has_the_readings_of_all():
    first, second = run(2, readings)
    assert first == second
