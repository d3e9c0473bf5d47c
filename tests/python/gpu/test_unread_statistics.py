"""The backward pass computes with the gradients of those statistics alone that a loss reads."""

import pytest
import torch

import isentrope
from isentrope.gpu import dispatch
from isentrope.gpu.arguments import TERMS_OF

NOTHING = set()


@pytest.fixture
def launches(monkeypatch):
    """Name and constants of each launch."""
    launched, original = [], dispatch.launch

    def recorded(kernel, grid, arguments, *variants):
        launched.append((kernel.fn.__name__, variants[0]))
        return original(kernel, grid, arguments, *variants)

    monkeypatch.setattr(dispatch, "launch", recorded)
    return launched


def backward(loss, launches, return_stats=True):
    """Returns the gradients of a loss, the terms of its query gradient, and its kernels."""
    torch.manual_seed(1)
    leaves = [torch.randn(1, heads, rows, 16, requires_grad=True) for heads, rows in ((4, 19), (2, 31), (2, 31))]
    computed = loss(*isentrope.attention(*leaves, return_stats=return_stats, rule="log_length"))
    launches.clear()
    gradients = torch.autograd.grad(computed, leaves)
    constants = dict(launches)
    requested = constants["query_gradient_kernel"]["GIVEN"]._asdict()
    return gradients, {name for name, there in requested.items() if there}, constants


def test_a_loss_of_the_output_has_no_terms_of_statistics(launches):
    found, terms, kernels = backward(lambda output, _: output.sum(), launches)
    assert terms == NOTHING and not kernels["gradient_rows_kernel"]["UPSTREAM"] and "largest_key_kernel" not in kernels
    alone, _, same = backward(lambda output: output.sum(), launches, return_stats=False)
    assert kernels == same and all(map(torch.equal, found, alone))


@pytest.mark.parametrize("name", TERMS_OF)
def test_a_statistic_brings_its_own_terms(name, launches):
    found, terms, kernels = backward(lambda _, statistics: getattr(statistics, name).sum(), launches)
    assert terms == TERMS_OF[name] and ("largest_key_kernel" in kernels) == ("LARGEST_KEY" in terms)
    others = [other for other in TERMS_OF if other != name]  # zeros as gradients of all others change nothing
    full, _, _ = backward(
        lambda _, statistics: getattr(statistics, name).sum() + sum(0 * getattr(statistics, other).sum() for other in others),
        launches,
    )
    torch.testing.assert_close(found, full, rtol=1e-5, atol=1e-6)
