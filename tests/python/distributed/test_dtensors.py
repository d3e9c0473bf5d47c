"""Operators on DTensors whose batch or heads are sharded over two ranks: results and gradients of whole tensors."""

import pytest
import torch
from ranks import over
from torch.distributed.tensor import (
    DTensor, Replicate, Shard, distribute_module, distribute_tensor, init_device_mesh,
)  # fmt: skip

import isentrope

pytestmark = pytest.mark.long
B, H, KV, S, K, D = 2, 4, 2, 9, 11, 8
RULE = "entropy_invariant(base=7)"


def tensors(heads=H, kv_heads=KV):
    return [torch.randn(B, h, rows, D, requires_grad=True) for h, rows in ((heads, S), (kv_heads, K), (kv_heads, K))]


def spread(leaves, axis):
    """Returns the tensors as leaves of their own, sharded along an axis."""
    mesh = init_device_mesh("cpu", (2,))
    return [distribute_tensor(x.detach(), mesh, [Shard(axis)]).requires_grad_(x.requires_grad) for x in leaves]


def assert_whole(parts, wanted):
    for part, want in zip(parts, wanted, strict=True):
        torch.testing.assert_close(part.full_tensor(), want)


@over(2)
def test_tensors_sharded_by_batch_and_by_head(rank):
    leaves, sinks = tensors(), torch.randn(H, requires_grad=True)

    def loss(q, k, v, sinks):
        output, s = isentrope.attention(q, k, v, rule=RULE, sinks=sinks, return_stats=("entropy", "support"))
        return output, output.square().sum() + s.entropy.sum()

    want = torch.autograd.grad(loss(*leaves, sinks)[1], (*leaves, sinks))
    for axis in (0, 1):
        parts = spread(leaves, axis)
        place = [Shard(0) if axis == 1 else Replicate()]
        parts.append(distribute_tensor(sinks.detach(), parts[0].device_mesh, place).requires_grad_())
        output, value = loss(*parts)
        assert isinstance(output, DTensor) and output.placements == (Shard(axis),)
        value.backward()
        assert_whole([part.grad for part in parts], want)


@over(2)
def test_second_order_of_sharded_tensors(rank):
    leaves = tensors()

    def penalty(*x):
        output, s = isentrope.attention(*x, rule=RULE, causal=True, return_stats=("entropy",))
        gradients = torch.autograd.grad(output.square().sum() + s.entropy.sum(), x, create_graph=True)
        return sum(g.square().sum() for g in gradients)

    want = torch.autograd.grad(penalty(*leaves), leaves)
    for axis in (0, 1):
        parts = spread(leaves, axis)
        got = torch.autograd.grad(penalty(*parts), parts)
        assert all(part.placements == (Shard(axis),) for part in got)
        assert_whole(got, want)


@over(2)
def test_dropout_of_sharded_tensors_is_that_of_whole_ones(rank):
    leaves = tensors()
    options = {"dropout_p": 0.3, "dropout_seed": 11}
    want = isentrope.attention(*leaves, **options)
    wanted = torch.autograd.grad(want.square().sum(), leaves)
    for axis in (0, 1, 2):
        parts = spread(leaves, axis)
        got = isentrope.attention(*parts, **options)
        assert_whole([got, *torch.autograd.grad(got.square().sum(), parts)], [want, *wanted])
        with pytest.raises(ValueError, match="dropout_seed must be given with DTensors"):
            isentrope.attention(*parts, dropout_p=0.3)


@over(2)
def test_heads_that_belong_together_are_not_cut_apart(rank):
    for heads, kv, rule in ((12, 3, RULE), (6, 3, RULE), (3, 3, RULE), (H, KV, "ssmax(s=[0.1,0.2,0.3,0.4])")):
        leaves = tensors(heads, kv)
        whole, sharded = ((x, isentrope.attention(*x, rule=rule, causal=True)) for x in (leaves, spread(leaves, 1)))
        results = [(y, *torch.autograd.grad(y.square().sum(), x)) for x, y in (sharded, whole)]
        assert_whole(*results)


@over(2)
def test_a_rule_with_one_list_for_all_heads_is_no_reason_to_gather(rank):
    leaves = [x.detach() for x in tensors()]
    for rule in ("table(n=[1, 4, 16], factor=[1, 2, 3])", "per_row(lambda=[0.1, 0.2, 0.3])"):
        want = isentrope.attention(*leaves, rule=rule, causal=True)
        for axis in (0, 1):
            got = isentrope.attention(*spread(leaves, axis), rule=rule, causal=True)
            assert got.placements == (Shard(axis),)
            assert_whole([got], [want])


@over(2)
def test_a_learned_scale_of_sharded_tensors(rank):
    leaves = [x.detach() for x in tensors()]
    module = isentrope.SSMax(H, learn_b=True)
    want = module(*leaves, causal=True)
    wanted = torch.autograd.grad(want.square().sum(), tuple(module.parameters()))
    distribute_module(module, init_device_mesh("cpu", (2,)))
    for axis in (0, 1):
        got = module(*spread(leaves, axis), causal=True)
        assert_whole([got, *torch.autograd.grad(got.square().sum(), tuple(module.parameters()))], [want, *wanted])


@over(2)
def test_a_cache_whose_sequences_or_heads_are_sharded(rank):
    q, pages = torch.randn(B, H, 1, D), torch.randn(6, KV, 4, D)
    table, used = torch.tensor([[5, 0], [2, 1]]), torch.tensor([7, 3])
    want = isentrope.decode(q, pages, pages, table, used, rule=RULE)
    for axis in (0, 1):
        cached, tables = (Replicate(), Shard(0)) if axis == 0 else (Shard(1), Replicate())
        placed = (Shard(axis), cached, cached, tables, tables)
        mesh = init_device_mesh("cpu", (2,))
        got = isentrope.decode(*(distribute_tensor(x, mesh, [p]) for x, p in zip((q, pages, pages, table, used), placed)), rule=RULE)
        assert got.placements == (Shard(axis),)
        assert_whole([got], [want])
