"""isentrope.scaled_dot_product_attention, and sdpa's arguments of isentrope.attention; test_sdpa_calls compares many calls."""

import torch
import torch.nn.functional as F
from refusals import assert_refused

import isentrope

FULL = dict(q=(2, 4, 9, 8), k=(2, 4, 13, 8), v=(2, 4, 13, 8))


def tensors(q, k, v):
    return [torch.randn(shape, requires_grad=True) for shape in (q, k, v)]


def test_arguments_may_stand_in_torchs_order():
    arguments = *tensors(**FULL), torch.rand(9, 13) > 0.3, 0.0, False
    functions = isentrope.scaled_dot_product_attention, F.scaled_dot_product_attention
    results = [function(*arguments, scale=0.3, enable_gqa=False) for function in functions]
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_attention_takes_the_words():
    q, k, v = tensors(**FULL)
    close = lambda a, b: torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)  # noqa: E731
    bias, mask = torch.randn(9, 13), torch.rand(9, 13) > 0.3
    close(isentrope.attention(q, k, v, is_causal=True), F.scaled_dot_product_attention(q, k, v, is_causal=True))
    close(isentrope.attention(q, k, v, is_causal=True), isentrope.attention(q, k, v, causal="top_left"))
    close(isentrope.attention(q, k, v, attn_mask=bias), F.scaled_dot_product_attention(q, k, v, attn_mask=bias))
    both = isentrope.attention(q, k, v, attn_mask=bias, bias=bias, is_causal=False)
    close(both, isentrope.attention(q, k, v, bias=2 * bias))
    grouped = tensors(q=(2, 6, 9, 8), k=(2, 2, 13, 8), v=(2, 2, 13, 8))
    close(isentrope.attention(*grouped, enable_gqa=True, attn_mask=mask), isentrope.attention(*grouped, attn_mask=mask))
    # Keys hidden by -inf count in n, keys hidden by False do not.
    hidden = torch.zeros(9, 13).masked_fill(~mask, -torch.inf)
    n = [isentrope.attention(q, k, v, rule="ssmax", attn_mask=x, return_stats=("lambda_",))[1].lambda_
         for x in (hidden, None, mask)]  # fmt: skip
    assert torch.equal(n[0], n[1]) and not torch.equal(n[0], n[2])


def test_errors_name_the_argument():
    q, k, v = tensors(**FULL)
    mask = torch.ones(9, 13).bool()
    for message, keys, options in (
        ("dropout_p must be at least 0 and below 1; got 1.0", k, {"dropout_p": 1.0}),
        ("attn_mask must be None with is_causal", k, {"attn_mask": mask, "is_causal": True}),
        (r"attn_mask must be broadcastable to \[2, 4, 9, 13\]; got \[8, 13\]", k, {"attn_mask": mask[1:]}),
        ("must be broadcastable before their last two dimensions", k[:, :3], {}),
        ("key must be a tensor of at least 2 dimensions", k[0, 0, 0], {}),
    ):
        assert_refused(message, isentrope.scaled_dot_product_attention, q, keys, v, **options)
    assert_refused("causal must be absent with is_causal; got True", isentrope.attention, q, k, v, causal=True, is_causal=True)
    fewer = "enable_gqa must be True for a k with fewer heads than q; got False"
    assert_refused(fewer, isentrope.attention, q, k[:, :2], v[:, :2], enable_gqa=False)
    for name in ("is_causal", "enable_gqa"):
        assert_refused(f"{name} must be a bool; got 1", isentrope.attention, q, k, v, **{name: 1}, error=TypeError)
