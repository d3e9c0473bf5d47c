"""The mass of the largest key: its value, its gradient on every path, ties, and parts of a sequence."""

import pytest
import torch

import isentrope

WAYS = {
    "whole": {},
    "causal": {"causal": True, "rule": "entropy_invariant(base=16)"},
    "capped, biased": {"soft_cap": 3.0, "bias": True},
    "sinks": {"sinks": True, "window_size": (30, 5)},
}


def inputs(dtype=torch.float64, keys=40):
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(2, heads, n, 16, generator=generator, dtype=dtype, requires_grad=True)
            for heads, n in ((4, 9), (2, keys), (2, keys))]  # fmt: skip


def options_of(way, keys=40):
    options, generator = dict(WAYS[way]), torch.Generator().manual_seed(6)
    if options.get("bias") is True:
        options["bias"] = torch.randn(1, 4, 9, keys, generator=generator)
    if options.get("sinks") is True:
        options["sinks"] = torch.randn(4, generator=generator)
    return options


def mass(leaves, **options):
    statistics = isentrope.attention(*leaves, return_stats="max_probability", **options)[1]
    assert statistics.max_logit is None
    return statistics.max_probability


@pytest.mark.parametrize("way", WAYS)
def test_it_is_the_largest_of_the_softmax_and_so_is_its_gradient(way):
    """For separated logits, in float64 and, with another implementation, in float32."""
    leaves, options = inputs(), options_of(way)
    statistics = isentrope.attention(*leaves, return_stats=("lse", "max_logit"), **options)[1]
    masses = mass(leaves, **options)
    torch.testing.assert_close(masses, (statistics.max_logit - statistics.lse).exp())
    upstream = torch.randn(masses.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    want = torch.autograd.grad((masses * upstream).sum(), leaves[:2])
    step = 1e-6 * torch.randn(leaves[1].shape, dtype=torch.float64, generator=torch.Generator().manual_seed(8))
    up, down = (mass([leaves[0], leaves[1] + s * step, leaves[2]], **options) for s in (1, -1))
    torch.testing.assert_close((want[1] * step).sum(), ((up - down) * upstream).sum() / 2, rtol=1e-6, atol=1e-12)

    floats = [x.detach().float().requires_grad_() for x in leaves]
    got = mass(floats, **{name: x.float() if isinstance(x, torch.Tensor) else x for name, x in options.items()})
    torch.testing.assert_close(got.double(), masses, rtol=1e-5, atol=1e-6)
    gradients = torch.autograd.grad((got * upstream).sum(), floats[:2])
    for a, b in zip(gradients, want):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("keys", [7, 700, 1500])
def test_of_several_largest_keys_the_first_takes_the_gradient(keys):
    """Equal keys share the weight, and one gets the gradient: blocks of keys agree on it."""
    q = torch.ones(1, 1, 3, 16)
    k = torch.zeros(1, 1, keys, 16)
    k[0, 0, [keys // 2, keys - 1]] = 1.0
    k.requires_grad_()
    masses = mass([q, k, torch.ones(1, 1, keys, 16)], scale=1.0)
    p = 1 / (2 + (keys - 2) * torch.exp(torch.tensor(-16.0)))
    torch.testing.assert_close(masses, p.expand_as(masses))
    slope = torch.autograd.grad(masses.sum(), k)[0][0, 0, :, 0] / 3
    torch.testing.assert_close(slope[keys // 2], p * (1 - p), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(slope[keys - 1], -p * p, rtol=1e-4, atol=1e-6)


def test_parts_merge_to_the_whole_with_their_gradients():
    leaves = [x.detach().float().requires_grad_() for x in inputs(keys=64)]
    lambda_ = torch.full((2, 4, 9), 0.4)
    place = {"causal": "top_left", "query_offset": 55, "sequence_keys": 64}
    output, statistics = isentrope.attention_rows(*leaves, lambda_, return_stats=("lse", "max_probability"), **place)
    want = torch.autograd.grad(statistics.max_probability.sum(), leaves)
    q, k, v = leaves
    parts = []
    for begin in (0, 32):
        part = isentrope.attention_rows(
            q, k[:, :, begin : begin + 32], v[:, :, begin : begin + 32], lambda_, return_stats=True,
            key_offset=begin, **place,
        )  # fmt: skip
        parts.append(isentrope.AttentionState(*part))
    merged = isentrope.merge(*parts)
    torch.testing.assert_close(merged.statistics.max_probability, statistics.max_probability)
    got = torch.autograd.grad(merged.statistics.max_probability.sum(), leaves, materialize_grads=True)
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
