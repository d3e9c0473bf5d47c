"""isentrope.sdpa.activate() behind torch's own function, and its removal."""

import warnings

import pytest
import torch
import torch.nn.functional as F

import isentrope


def qkv():
    return [torch.randn(2, 3, 33, 16, requires_grad=True) for _ in range(3)]


def test_the_rule_acts_and_removal_restores_the_bits():
    q, k, v = qkv()
    before = F.scaled_dot_product_attention(q, k, v)
    gradients = torch.autograd.grad(before.sum(), (q, k, v), retain_graph=True)
    mask = torch.rand(33, 33) > 0.3
    want = isentrope.attention(q, k, v, rule="logn(8)", attn_mask=mask)
    with isentrope.sdpa.activate("logn(8)") as handle:
        got = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        assert all(map(torch.equal, torch.autograd.grad(before.sum(), (q, k, v)), gradients))
        with pytest.raises(RuntimeError, match="must not be active already"):
            isentrope.sdpa.activate()
    handle.remove()
    torch.testing.assert_close(*((x, *torch.autograd.grad(x.square().sum(), (q, k, v))) for x in (got, want)))
    assert torch.equal(F.scaled_dot_product_attention(q, k, v), before)


def test_compiled_functions_follow():
    compiled = torch.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v).square().sum(), backend="aot_eager")
    with isentrope.sdpa.activate("entropy_invariant(base=2)"):
        q, k, v = qkv()
        want = isentrope.attention(q, k, v, rule="entropy_invariant(base=2)").square().sum()
        torch.testing.assert_close(*((x, *torch.autograd.grad(x, (q, k, v))) for x in (compiled(q, k, v), want)))


def _laid_out(layout, rows, requires_grad):
    shape, order = {
        "contiguous": ((2, 3, rows, 16), (0, 1, 2, 3)),
        "heads inside": ((2, rows, 3, 16), (0, 2, 1, 3)),
        "rows first": ((rows, 2, 3, 16), (1, 2, 0, 3)),
    }[layout]
    return torch.randn(shape).permute(order).detach().requires_grad_(requires_grad)


LAYOUTS = ["contiguous", "heads inside", "rows first"]


@pytest.mark.parametrize("layout_of_keys", LAYOUTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_results_are_laid_out_as_torchs_own(layout, layout_of_keys):
    q = _laid_out(layout, 33, True)
    k, v = (_laid_out(layout_of_keys, 21, True) for _ in range(2))

    def results():
        output, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)
        gradients = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            torch.ones_like(output), q, k, v, output, lse, 0.0, False
        )
        return output, lse, *gradients

    want = results()
    with isentrope.sdpa.activate():
        for a, b in zip(results(), want):
            assert a.stride() == b.stride()
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("layout", ["contiguous", "heads inside"])
@pytest.mark.parametrize("grad", [False, True])
def test_the_default_compiler_goes_by_the_layout(layout, grad):
    q, k, v = (_laid_out(layout, 33, grad) for _ in range(3))

    def block(q, k, v):
        output = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        # Each view is possible for one of the two layouts only, and torch's own kernel chooses the layout.
        flat = output.reshape(2, -1) if layout == "contiguous" else output.transpose(1, 2).reshape(2, 33, -1)
        return (flat * 2).sin()

    want = block(q, k, v)
    wanted = torch.autograd.grad(want.sum(), (q, k, v)) if grad else ()
    with isentrope.sdpa.activate():
        torch._dynamo.reset()
        got = torch.compile(block)(q, k, v)
        gradients = torch.autograd.grad(got.sum(), (q, k, v)) if grad else ()
    for a, b in zip((got, *gradients), (want, *wanted)):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_activation_says_nothing():
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            isentrope.sdpa.activate().remove()
    finally:
        torch.set_warn_always(False)


def test_a_torch_that_lays_results_out_otherwise_is_refused(monkeypatch):
    monkeypatch.setattr("isentrope.sdpa.activation._heads_inside", lambda tensor: tensor.contiguous())
    with pytest.raises(RuntimeError, match="must return one of the known strides from its kernels"):
        isentrope.sdpa.activate()
    assert F.scaled_dot_product_attention(*qkv()).shape == (2, 3, 33, 16)
