"""Keys and values loaded by tensor descriptors, as a choice of the tiles: same bits as through pointers."""

import pytest
import torch

import isentrope
from isentrope.gpu import launch_backward, launch_forward, plan

STATISTICS = ("lse", "entropy", "variance")


@pytest.fixture
def described(monkeypatch):
    """Returns a function that makes a call through pointers, then with tiles that ask for descriptors. It returns both results
    and whether the second call had descriptors in its last launch that may have them."""
    tiles, made, found = plan.tiles, launch_forward.descriptors, []

    def noted(call, shape):
        found.append(shape.DESCRIPTORS)
        return made(call, shape)

    def compare(function, *arguments, **options):
        results = []
        for chosen in (False, True):
            monkeypatch.setattr(plan, "tiles", lambda *x, **y: tiles(*x, **y)._replace(descriptors=chosen))
            output, statistics = function(*arguments, **options, return_stats=STATISTICS)
            results.append((output, *(getattr(statistics, name) for name in STATISTICS)))
        return *results, found[-1]

    for module in (launch_forward, launch_backward):
        monkeypatch.setattr(module, "descriptors", noted)
    return compare


def same_bits(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b))


@pytest.mark.parametrize("queries, dtype", [(1, torch.float32), (1, torch.bfloat16), (40, torch.float32)])
def test_contiguous_keys(described, queries, dtype):
    q, k, v = torch.randn(1, 2, queries, 16), torch.randn(1, 1, 150, 32)[..., :16], torch.randn(1, 1, 150, 16)
    pointers, descriptors, used = described(isentrope.attention, q.to(dtype), k.to(dtype), v.to(dtype), causal=True)
    assert used and same_bits(pointers, descriptors)


def gradients(*tensors, **options):
    """Returns the gradients of a loss that reads the output and statistics, in place of those."""
    leaves = [x.detach().requires_grad_() for x in tensors]
    output, statistics = isentrope.attention(*leaves, **options)
    read = [output, *(getattr(statistics, name) for name in STATISTICS)]
    dq, dk, dv = torch.autograd.grad([(x.float() ** 2).sum() for x in read], leaves)
    return dq, statistics._replace(lse=dk, entropy=dv, variance=dq)


@pytest.mark.parametrize("dtype", [torch.float16, *(pytest.param(x, marks=pytest.mark.long) for x in (torch.float32, torch.bfloat16))], ids=str)
def test_gradients(described, dtype):
    q, k, v = torch.randn(1, 2, 70, 16), torch.randn(1, 1, 150, 32)[..., :16], torch.randn(1, 1, 150, 16)
    pointers, descriptors, used = described(gradients, q.to(dtype), k.to(dtype), v.to(dtype), causal=True)
    assert used and same_bits(pointers, descriptors)


def test_a_boolean_mask_leaves_no_tile_to_descriptors(described):
    q, k, v = (torch.randn(1, 2, 70, 16) for _ in "qkv")
    pointers, others, used = described(isentrope.attention, q, k, v, attn_mask=torch.rand(70, 70) < 0.9)
    assert not used and same_bits(pointers, others)


def test_pages(described):
    q, (k, v) = torch.randn(1, 2, 1, 16), (torch.randn(20, 1, 16, 16) for _ in "kv")
    table = torch.randperm(20)[:10].view(1, 10).int()
    pointers, descriptors, used = described(isentrope.decode, q, k, v, table, torch.tensor([150]))
    assert used and same_bits(pointers, descriptors)


@pytest.mark.parametrize("k", [torch.randn(1, 1, 90, 17)[..., :16], torch.randn(1, 1, 90, 32)[..., ::2], torch.randn(1, 1, 1, 16).expand(1, 1, 90, 16)])
def test_strides_that_bulk_copies_do_not_take(described, k):
    pointers, others, used = described(isentrope.attention, torch.randn(1, 2, 1, 16), k, torch.randn(1, 1, 90, 16))
    assert not used and same_bits(pointers, others)
