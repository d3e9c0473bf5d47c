"""Decode steps over a cache that is split over ranks."""

import itertools

import pytest
import torch
from cases import tensors
from ranks import over
from refusals import assert_refused

import isentrope
from isentrope import AttentionState, Statistics, distributed

RULE = "entropy_invariant(base=7)"


@pytest.mark.parametrize("ranks", [2, *(pytest.param(ranks, marks=pytest.mark.long) for ranks in (1, 4))])
@over()
def test_decode_over_ranks(rank, ranks):
    for queries, total, options in itertools.product(
        (1, 3),
        (3, 17),
        ({}, {"window_size": (4, -1)}, {"soft_cap": 2.0, "key_end": torch.tensor([17, 2]).clamp(max=3)},
         {"sinks": torch.tensor([0.3, 0.0, 1.0, -1.0])}, {"chunk_size": 2, "key_begin": torch.tensor([0, 1])},
         {"prefix_keys": torch.tensor([17, 2])}),
    ):  # fmt: skip
        q, k, v = (x.detach() for x in tensors(total))
        q = q[:, :, total - queries :]
        want, s = isentrope.attention(q, k, v, rule=RULE, causal=True, return_stats=True, **options)
        # Parts of any length, including an empty one.
        begin, end = {1: [0, total], 2: [0, total - 1, total], 4: [0, 1, 1, min(6, total), total]}[ranks][rank : rank + 2]
        part = (q, k[:, :, begin:end], v[:, :, begin:end])
        place = dict(key_offset=begin, sequence_keys=total, rule=RULE, **options)
        got, t = distributed.decode(*part, **place, return_stats=True)
        torch.testing.assert_close((got, *t), (want, *s))
        assert torch.equal(distributed.decode(*part, **place), got)
        _, one = distributed.decode(*part, **place, return_stats=("variance",))
        assert torch.equal(one.variance, t.variance) and one.lse is None
        assert_refused(r"\[decode\] q, k, v and sinks must not require", distributed.decode, q.clone().requires_grad_(), *part[1:], **place)
        assert all(torch.equal(x, got) for x in distributed.gather(got, 0).split(len(got)))


@over(2)
def test_merge_has_gradients(rank):
    q, k, v = tensors(8)
    part = slice(4 * rank, 4 * rank + 4)
    place = dict(query_offset=0, key_offset=4 * rank, sequence_keys=8)
    leaves = [x.detach()[:, :, slices].clone().requires_grad_() for x, slices in ((q, slice(None)), (k, part), (v, part))]
    state = distributed.merge(AttentionState(*isentrope.attention(*leaves, **place, return_stats=True)))
    want, s = isentrope.attention(q, k, v, return_stats=True)
    torch.testing.assert_close((state.output, *state.statistics), (want, *s))
    exact = distributed.merge(AttentionState(*isentrope.attention(*(x.double() for x in leaves), **place, return_stats=True)))
    torch.testing.assert_close(exact.output, isentrope.attention(*(x.double() for x in (q, k, v))), rtol=0, atol=1e-14)
    loss = [o.square().sum() + t.entropy.sum() + t.variance.sum() for o, t in (state, (want, s))]
    got, expected = torch.autograd.grad(loss[0], leaves), torch.autograd.grad(loss[1], (q, k, v))
    # Both ranks have the same loss, so each part's gradient is twice that of one process.
    torch.testing.assert_close([x / 2 for x in got[1:]], [x[:, :, part] for x in expected[1:]])
    assert_refused("state must have statistics with lse; got none", distributed.merge, AttentionState(want, Statistics()))
