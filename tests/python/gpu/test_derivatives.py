"""The tangent pass and the second-order pass on the kernels, against the CPU's."""

import pytest
import torch
from test_front_doors import assert_as_on_the_cpu, by_the_cpu
from test_received import OPTIONS

import isentrope
from isentrope._core.call import call_of
from isentrope._core.library import OPS, SUPPORT
from isentrope.statistics import ALL

SIZES = {"q": (2, 4, 17, 16), "k": (2, 2, 25, 16), "v": (2, 2, 25, 24)}
MORE = {
    "documents": {"cu_seqlens_q": torch.tensor([0, 6, 17]), "cu_seqlens_k": torch.tensor([0, 11, 25]), "causal": True},
    "lambda": {"lambda_": torch.randn(2, 4, 17, generator=torch.Generator().manual_seed(3)), "soft_cap": 2.0},
    "dropout": {"dropout_p": 0.3, "dropout_seed": 5, "rule": "log_length"},
}
CASES = [(name, torch.float32) for name in OPTIONS | MORE] + [("mask and bias", torch.bfloat16), ("dropout", torch.float16)]
FAST = ("mask and bias", torch.float32), ("lambda", torch.float32), ("dropout", torch.float16)


def results(call, wanted):
    """Returns the results of both operators for random tangents and upstream gradients."""
    torch.manual_seed(1)
    output, statistics, _ = OPS.attention(*call, wanted)
    given = call.q, call.k, call.v, call.bias, call.lambda_, call.sinks
    tangents = [None if x is None else torch.randn_like(x) for x in given]
    point = *call, wanted & (SUPPORT - 1), output, statistics
    moved = OPS.attention_tangent(*point, *tangents)
    wants = [x is not None for x in given[3:]]
    upstream = torch.randn_like(output), torch.randn_like(statistics)
    return *moved, *OPS.attention_second_order(*point, *tangents, *moved, *upstream, *wants)


@pytest.mark.parametrize(("name", "dtype"), [pytest.param(*x, marks=() if x in FAST else pytest.mark.long) for x in CASES])
def test_both_passes_compute_what_the_cpu_does(name, dtype):
    q, k, v = (torch.randn(*shape).to(dtype) for shape in SIZES.values())
    call = call_of(q, k, v, **(OPTIONS | MORE)[name])
    with by_the_cpu():
        want = results(call, ALL)
    for got, expected in zip(results(call, ALL), want, strict=True):
        error, size = (got.double() - expected.double()).abs().max() if got.numel() else 0.0, expected.double().abs().max() if got.numel() else 1.0
        assert error <= size * {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}[dtype]


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_hidden_numbers_that_are_none_reach_no_row(name):
    """A NaN of the last position, which a causal mask hides from the rows before."""
    primals = [torch.randn(1, 2, 40, 16) for _ in range(3)]
    tangents = [torch.randn_like(x) for x in primals]
    tangents["qkv".index(name)][:, :, -1] = torch.nan
    output, moved = torch.func.jvp(lambda *x: isentrope.attention(*x, causal=True), tuple(primals), tuple(tangents))
    assert output.isfinite().all() and moved[:, :, :-1].isfinite().all() and not moved[:, :, -1].isfinite().any()


def test_torch_reaches_both_passes():
    x = torch.randn(1, 2, 12, 16, requires_grad=True)

    def of(x):
        output, stats = isentrope.attention(x, x, x.cos(), causal=True, return_stats=("entropy",))
        return output.square().sum() + stats.entropy.sum()

    def found():
        (gradient,) = torch.autograd.grad(of(x), x, create_graph=True)
        return torch.func.jvp(of, (x.detach(),), (x.detach().sin(),))[1], *torch.autograd.grad(gradient.square().sum(), x)

    assert_as_on_the_cpu(found, rtol=1e-4, atol=1e-4)
