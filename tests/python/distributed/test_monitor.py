"""Monitor readings gathered from all ranks."""

import torch
from ranks import over
from refusals import assert_refused
from torch import nn

import isentrope
from isentrope import distributed
from isentrope.models.monitor_logs import gathered, merged


class Attention(nn.Module):
    def __init__(self, heads, function):
        super().__init__()
        self.heads, self.function = heads, function

    def forward(self, x):
        heads = x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return self.function(heads, heads, heads, causal=True).transpose(1, 2).flatten(2)


def read(x, function=isentrope.attention):
    monitor = isentrope.Monitor(nn.Sequential(Attention(4, function), Attention(2, function)))
    with monitor.watch():
        monitor._model(x)
    return monitor.latest


@over(2)
def test_every_rank_has_the_readings_of_all(rank):
    x = torch.randn(4, 20, 32)  # the same on every rank
    halves, every = [read(half) for half in x.split(2)], read(x)
    by_rank = gathered(halves[rank])
    torch.testing.assert_close([each[:5] for each in by_rank], [each[:5] for each in halves], rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(merged(by_rank)[:5], every[:5], equal_nan=True)
    assert merged(by_rank).names == every.names == ("0", "1")


@over(2)
def test_calls_over_ranks_are_refused(rank):
    for function in (distributed.attention, lambda *x, causal: distributed.decode(*x, key_offset=20 * rank, sequence_keys=40)):
        assert_refused("must be called outside of Monitor.watch", read, torch.randn(4, 20, 32), function)
