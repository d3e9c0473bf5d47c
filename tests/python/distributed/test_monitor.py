"""Monitor readings gathered from all ranks."""

import torch
from ranks import run
from torch import nn

import isentrope
from isentrope.models.monitor_logs import gathered, merged


class Attention(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.heads = heads

    def forward(self, x):
        heads = x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return isentrope.attention(heads, heads, heads, causal=True).transpose(1, 2).flatten(2)


def read(x):
    monitor = isentrope.Monitor(nn.Sequential(Attention(4), Attention(2)))
    with monitor.watch():
        monitor._model(x)
    return monitor.latest


def readings(rank):
    x = torch.randn(4, 20, 32)  # the same on every rank
    mine, every = read(x[2 * rank : 2 * rank + 2]), read(x)
    by_rank = gathered(mine)
    assert len(by_rank) == 2
    torch.testing.assert_close(by_rank[rank][:5], mine[:5], rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(merged(by_rank)[:5], every[:5], equal_nan=True)
    assert merged(by_rank).names == every.names == ("0", "1")
    return by_rank[0].entropy.nan_to_num().tolist()


def test_every_rank_has_the_readings_of_all():
    first, second = run(2, readings)
    assert first == second
