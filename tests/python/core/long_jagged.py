"""Jagged tensors are computed, one document each; other non-dense layouts are refused with advice."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from refusals import assert_refused

import isentrope

LENGTHS, KEYS = (3, 5, 1), (4, 5, 2)


def jagged(lengths, heads, like=None):
    offsets = torch.tensor([0, *lengths]).cumsum(0) if like is None else like.offsets()
    values = torch.randn(sum(lengths), heads, 8)
    return torch.nested.nested_tensor_from_jagged(values, offsets).transpose(1, 2)


def tensors():
    k = jagged(KEYS, 2)
    return jagged(LENGTHS, 4), k, jagged(KEYS, 2, like=k)


@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"is_causal": True}, {"window_size": (2, 0)}, {"scale": -0.3, "soft_cap": 2.0},
     {"sinks": torch.randn(4), "attn_mask": None}],
)  # fmt: skip
def test_every_sequence_is_a_call(options):
    q, k, v = tensors()
    output, statistics = isentrope.attention(q, k, v, rule="logn(2)", return_stats=True, **options)
    assert output.is_nested and output.shape[2] == q.shape[2]
    alone = zip(*(x.unbind() for x in (q, k, v, output, statistics.entropy, statistics.support)))
    for a, b, c, *got in alone:
        one = isentrope.attention(*(x[None] for x in (a, b, c)), rule="logn(2)", return_stats=True, **options)
        torch.testing.assert_close(got, [x[0] for x in (one[0], one[1].entropy, one[1].support)])


def test_gradients_and_torchs_function():
    q = jagged(LENGTHS, 4)
    leaves = [q.detach().requires_grad_() for _ in range(2)]
    results = [call(x, x, x) for call, x in zip((F.scaled_dot_product_attention, isentrope.scaled_dot_product_attention), leaves)]
    gradients = [torch.autograd.grad(y.values().square().sum(), x)[0].values() for y, x in zip(results, leaves)]
    torch.testing.assert_close(results[1].values(), results[0].values())
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)
    with isentrope.sdpa.activate():  # torch unpacks a nested call before it calls this
        torch.testing.assert_close(F.scaled_dot_product_attention(q, q, q).values(), results[0].values())


@pytest.mark.parametrize(
    "changed, message",
    [({"query_offset": 3}, "query_offset must be absent with jagged tensors; got 3"),
     ({"attn_mask": torch.ones(5, 5).bool()}, "attn_mask must be absent with jagged tensors"),
     ({"k": torch.randn(3, 2, 5, 8)}, r"k must be jagged as the others are.*got float32 \[3, 2, 5, 8\]"),
     ({"q": torch.randn(3, 4, 5, 8)}, "k must be a dense tensor; got one that is nested"),
     ({"v": jagged(LENGTHS, 2)}, r"v must have the offsets of k, as from .*got another tensor of offsets, for \d+ sequences")],
)  # fmt: skip
def test_what_does_not_fit_is_named(changed, message):
    assert_refused(message, isentrope.attention, **dict(zip("qkv", tensors())) | changed)


def of_layout(layout):
    x = torch.randn(2, 4, 5, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "nested": lambda: torch.nested.nested_tensor([torch.randn(4, 3, 8), torch.randn(4, 5, 8)]),
            "sparse_coo": x.to_sparse,
            "quantized": lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
            "_mkldnn": x.to_mkldnn,
        }[layout]()


@pytest.mark.parametrize("layout", ["nested", "sparse_coo", "quantized", "_mkldnn"])
@pytest.mark.parametrize("call", [isentrope.attention, isentrope.scaled_dot_product_attention, lambda q, k, _: isentrope.row_lengths(q, k)])
def test_what_is_not_dense_is_refused_with_what_to_do(call, layout):
    x = of_layout(layout)
    assert_refused(rf"must be a dense tensor; got one that is {layout}: use x.to_dense\(\)", call, x, x, x)


def test_torchs_function_keeps_nested_tensors_for_itself():
    x = of_layout("nested")
    want = F.scaled_dot_product_attention(x, x, x)
    with isentrope.sdpa.activate():
        got = F.scaled_dot_product_attention(x, x, x)
    assert all(torch.equal(a, b) for a, b in zip(got.unbind(), want.unbind()))
