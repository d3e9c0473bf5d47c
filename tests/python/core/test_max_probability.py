"""The mass of the largest key where several are the largest. Its value and gradient elsewhere are in test_attention and test_float64."""

import pytest
import torch

import isentrope


@pytest.mark.parametrize("keys", [7, 700, 1500])
def test_of_several_largest_keys_the_first_takes_the_gradient(keys):
    """Equal keys share the weight, and one gets the gradient: blocks of keys agree on it."""
    q = torch.ones(1, 1, 3, 16)
    k = torch.zeros(1, 1, keys, 16)
    k[0, 0, [keys // 2, keys - 1]] = 1.0
    k.requires_grad_()
    _, statistics = isentrope.attention(q, k, torch.ones(1, 1, keys, 16), scale=1.0, return_stats="max_probability")
    masses = statistics.max_probability
    p = 1 / (2 + (keys - 2) * torch.exp(torch.tensor(-16.0)))
    torch.testing.assert_close(masses, p.expand_as(masses))
    assert statistics.max_logit is None
    slope = torch.autograd.grad(masses.sum(), k)[0][0, 0, :, 0] / 3
    torch.testing.assert_close(slope[keys // 2], p * (1 - p), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(slope[keys - 1], -p * p, rtol=1e-4, atol=1e-6)
