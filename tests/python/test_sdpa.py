"""isentrope.sdpa.activate(): behind torch's own function, and back."""

import pytest
import torch
import torch.nn.functional as F

import isentrope


def qkv(dtype=torch.float32):
    return [torch.randn(2, 3, 33, 16, dtype=dtype, requires_grad=True) for _ in range(3)]


@pytest.mark.parametrize(
    "options",
    [{}, {"is_causal": True}, {"scale": 0.7}, {"attn_mask": torch.rand(33, 33) > 0.3},
     {"attn_mask": torch.randn(2, 1, 33, 33)}],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_and_gradients_are_torchs(options, dtype):
    q, k, v = qkv(dtype)
    if options.get("attn_mask") is not None and options["attn_mask"].is_floating_point():
        options = {"attn_mask": options["attn_mask"].to(dtype)}
    want = F.scaled_dot_product_attention(q, k, v, **options)
    wanted = torch.autograd.grad(want.square().sum(), (q, k, v))
    with isentrope.sdpa.activate():
        got = F.scaled_dot_product_attention(q, k, v, **options)
        gradients = torch.autograd.grad(got.square().sum(), (q, k, v))
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    for a, b in zip(gradients, wanted):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": torch.rand(33, 33) > 0.3}])
def test_double_precision_stays_torchs_own(options):
    q, k, v = qkv(torch.float64)

    def results():
        output = F.scaled_dot_product_attention(q, k, v, **options)
        return output, *torch.autograd.grad(output.square().sum(), (q, k, v))

    want = results()
    with isentrope.sdpa.activate("logn(2)"):
        assert all(torch.equal(a, b) for a, b in zip(results(), want))


def test_the_rule_acts_and_removal_restores_the_bits():
    q, k, v = qkv()
    before = F.scaled_dot_product_attention(q, k, v)
    mask = torch.rand(33, 33) > 0.3
    with isentrope.sdpa.activate("logn(8)") as handle:
        torch.testing.assert_close(
            F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
            isentrope.attention(q, k, v, rule="logn(8)", attn_mask=mask),
        )
        with pytest.raises(RuntimeError, match="must not be active already"):
            isentrope.sdpa.activate()
    handle.remove()
    assert torch.equal(F.scaled_dot_product_attention(q, k, v), before)


def test_modules_and_compiled_functions_follow():
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    x = torch.randn(2, 9, 32)
    plain = layer(x)
    plain_loss = lambda q, k, v: F.scaled_dot_product_attention(q, k, v).square().sum()  # noqa: E731
    compiled = torch.compile(plain_loss, backend="aot_eager")
    with isentrope.sdpa.activate("entropy_invariant(base=2)"):
        assert (layer(x) - plain).abs().max() > 1e-4
        q, k, v = qkv()
        want = isentrope.attention(q, k, v, rule="entropy_invariant(base=2)").square().sum()
        torch.testing.assert_close(compiled(q, k, v), want)
        for a, b in zip(torch.autograd.grad(compiled(q, k, v), (q, k, v)), torch.autograd.grad(want, (q, k, v))):
            torch.testing.assert_close(a, b)
