"""The weight that keys receive, on the kernels, against the CPU."""

import pytest
import torch
from test_front_doors import assert_as_on_the_cpu, by_the_cpu

import isentrope

OPTIONS = {
    "none": {},
    "causal": {"causal": True},
    "window": {"causal": True, "window_size": (12, -1), "rule": "log_length"},
    "dilated": {"causal": True, "dilation": 3},
    "padding": {"key_end": torch.tensor([23, 11]), "key_begin": torch.tensor([3, 0])},
    "mask and bias": {
        "attn_mask": torch.rand(2, 4, 17, 25, generator=torch.Generator().manual_seed(1)) > 0.3,
        "bias": torch.randn(2, 4, 17, 25, generator=torch.Generator().manual_seed(2)),
    },
    "soft-cap and sinks": {"soft_cap": 3.0, "sinks": torch.tensor([0.5, -1.0, 2.0, 0.0])},
}  # fmt: skip


CASES = [(name, torch.float32) for name in OPTIONS] + [("soft-cap and sinks", torch.bfloat16), ("window", torch.float16)]
FAST = [("padding", torch.float32), ("mask and bias", torch.float32), *CASES[-2:]]


@pytest.mark.parametrize(("name", "dtype"), [pytest.param(*x, marks=() if x in FAST else pytest.mark.long) for x in CASES])
def test_keys_receive_what_they_do_on_the_cpu(name, dtype):
    q, k = torch.randn(2, 4, 17, 16, dtype=dtype), torch.randn(2, 2, 25, 16, dtype=dtype)
    weights = torch.randn(2, 4, 17).relu()  # some are 0
    options = OPTIONS[name]
    with by_the_cpu():
        lse = isentrope.attention(q, k, k, return_stats=("lse",), **options)[1].lse
        want = isentrope.received(q, k, lse, weights=weights, **options)
        chosen = torch.randint(-2, 28, (2, 4, 17, 19))
        want_at = isentrope.weights_at(q, k, lse, chosen, **options)
    got = isentrope.received(q, k, lse, weights=weights, **options)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(isentrope.weights_at(q, k, lse, chosen, **options), want_at, rtol=1e-5, atol=1e-6)


def test_pages_of_a_cache_are_read_as_keys():
    """Pages behind a sequence's last key are not read."""
    q, cache = torch.randn(2, 4, 5, 16), torch.randn(9, 2, 8, 16)
    cache[7] = torch.nan
    of_cache = {"block_table": torch.tensor([[3, 0, 5], [8, 1, 7]]), "seqused_k": torch.tensor([21, 13])}
    with by_the_cpu():
        lse = isentrope.decode(q, cache, cache, *of_cache.values(), return_stats=("lse",))[1].lse
        want = isentrope.received(q, cache, lse, **of_cache)
    torch.testing.assert_close(isentrope.received(q, cache, lse, **of_cache), want)
    torch.testing.assert_close(isentrope.weights_at(q, cache, lse, torch.arange(24), **of_cache).sum(2), want)


def test_nan_reaches_the_keys_of_its_row_alone():
    q, k = torch.randn(1, 1, 60, 16), torch.randn(1, 1, 60, 16)
    q[0, 0, 40] = torch.nan
    with by_the_cpu():
        lse = isentrope.attention(q, k, k, return_stats=("lse",), causal=True, window_size=(9, -1))[1].lse
    got = isentrope.received(q, k, lse, causal=True, window_size=(9, -1))
    assert got[0, 0].isnan().nonzero().flatten().tolist() == list(range(31, 41))
    weights = torch.ones(60).index_fill(0, torch.tensor(40), 0)
    assert isentrope.received(q, k, lse, weights=weights, causal=True, window_size=(9, -1)).isfinite().all()


def test_gradients_agree_with_the_cpu():
    q, k = torch.randn(1, 4, 17, 16, requires_grad=True), torch.randn(1, 2, 17, 16, requires_grad=True)

    def gradients():
        lse = isentrope.attention(q, k, k, return_stats=("lse",), causal=True)[1].lse
        of_previous = isentrope.weights_at(q, k, lse, torch.arange(-1, 16)[:, None], causal=True)
        return torch.autograd.grad(isentrope.received(q, k, lse, causal=True).square().sum() + of_previous.square().sum(), (q, k))

    assert_as_on_the_cpu(gradients, rtol=1e-3, atol=1e-3)
