"""float16 gradients are scaled into range row by row, by the keys that each row sees."""

import math

import pytest
import torch
from dense import dense

import isentrope

LENGTH, DIM = 70, 16


def inputs():
    q, k, v, upstream = (torch.randn(1, heads, LENGTH, DIM).half() for heads in (2, 1, 1, 2))
    return q, k, v, upstream


def gradients(q, k, v, upstream, **options):
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    isentrope.attention(*leaves, **({"causal": True} | options)).backward(upstream)
    return [x.grad for x in leaves]


def in_double(q, k, v, upstream):
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    return torch.autograd.grad(dense(*leaves, causal=True)[0], leaves, upstream.double())


@pytest.mark.parametrize("power", [-9, 0, 9])
def test_gradients_keep_their_digits_whatever_their_size(power):
    """One head's gradients are 2^power times those of the other: checks each row of dq that is not denormal, and dk and
    dv."""
    q, k, v, upstream = inputs()
    upstream[:, 1] *= 2.0**power
    for name, got, want in zip("qkv", gradients(q, k, v, upstream), in_double(q, k, v, upstream)):
        error, size = ((x**2).sum(-1).sqrt() for x in (got.double() - want, want))
        seen = size > (2.0**-13 if name == "q" else 0.0)
        assert (error[seen] < 2.0**-8 * size[seen]).all(), name


SEEN_BY_ALL = torch.arange(LENGTH) < LENGTH - 1
BIAS = torch.zeros(LENGTH).masked_fill(~SEEN_BY_ALL, -math.inf).half()


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"causal": False, "attn_mask": SEEN_BY_ALL}, marks=pytest.mark.long),
        pytest.param({"causal": False, "bias": BIAS}, marks=pytest.mark.long),
    ],
    ids=["causal", "attn_mask", "bias"],
)
def test_values_that_a_mask_hides_have_no_part_in_the_range(options):
    """The hidden value is the last one, hidden from earlier rows or from all."""
    q, k, v, upstream = inputs()
    before = gradients(q, k, v, upstream, **options)[0][:, :, :-1]
    v[:, :, -1] = 6e4
    assert torch.equal(gradients(q, k, v, upstream, **options)[0][:, :, :-1], before)


def test_a_dilation_hides_values_between():
    q, k, v, upstream = inputs()
    options = {"window_size": (30, 0), "dilation": 2}
    before = gradients(q, k, v, upstream, **options)[0][:, :, 1::2]
    v[:, :, 0::2] = 6e4
    assert torch.equal(gradients(q, k, v, upstream, **options)[0][:, :, 1::2], before)


def test_what_arrives_at_a_row_without_keys_is_nobodys():
    """Its gradient also has no influence on the range of keys whose tile meets the row's block."""
    q, k, v, upstream = inputs()

    def with_lse(d_lse):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        scales = torch.full((1, 2, LENGTH), DIM**-0.5)
        masks = {"causal": True, "key_begin": torch.tensor([5])}
        output, statistics = isentrope.attention_rows(*leaves, scales, **masks, return_stats=("lse",))
        torch.autograd.backward([output, statistics.lse], [upstream, d_lse])
        return [x.grad for x in leaves]

    d_lse = torch.zeros(1, 2, LENGTH)
    before = with_lse(d_lse.clone())
    d_lse[:, :, :5] = 1e12
    assert all(map(torch.equal, with_lse(d_lse), before))
