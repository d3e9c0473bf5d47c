"""Forward mode, double backward and their compositions in float64, against finite differences and torch's own derivatives."""

import itertools
import re
from pathlib import Path

import pytest
import torch
from compositions import COMPOSITIONS, assert_same, by_definition, create_graph, square
from dense import DIFFERENTIABLE
from torch.autograd import gradcheck, gradgradcheck

import isentrope

B, H, KV, S, K, D, DV = 2, 2, 1, 3, 4, 3, 2
NUMBERS = torch.Generator().manual_seed(1)

pytestmark = pytest.mark.filterwarnings("ignore:.*is computed by the reference")


def numbers(*shape, requires_grad=True):
    return torch.randn(*shape, generator=NUMBERS, dtype=torch.float64).requires_grad_(requires_grad)


def tensors(queries=S, keys=K):
    return numbers(B, H, queries, D), numbers(B, KV, keys, D), numbers(B, KV, keys, DV)


MASK = torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
CASES = {
    "full": {},
    "causal": {"causal": True},
    "top left": {"causal": "top_left"},
    "window": {"window_size": (1, 1)},
    "dilation": {"window_size": (2, 2), "dilation": 2},
    "chunks": {"causal": True, "chunk_size": 2},
    "prefix": {"causal": True, "prefix_keys": 2},
    "padding": {"key_begin": torch.tensor([0, 2]), "key_end": torch.tensor([4, 2])},
    "mask": {"attn_mask": MASK},
    "place": {"causal": True, "query_offset": 1, "key_offset": 2, "sequence_keys": 9},
    "soft-cap": {"soft_cap": 1.5},
    "dropout": {"dropout_p": 0.4, "dropout_seed": 3},
    "rule": {"causal": True, "rule": "entropy_invariant(base=7)", "scale": 0.7},
    "rule of heads": {"rule": "ssmax(s=[0.5, 0.9])"},
}
QUICK = ("causal", "mask", "soft-cap", "dropout")


def quick_and_long(names, quick):
    return [name if name in quick else pytest.param(name, marks=pytest.mark.long) for name in names]


def check_both_orders(function, inputs):
    assert gradcheck(function, inputs, check_forward_ad=True, check_batched_forward_grad=True, check_batched_grad=True)
    assert gradgradcheck(function, inputs, check_fwd_over_rev=True)


@pytest.mark.parametrize("name", quick_and_long(CASES, ("mask", "dropout")))
def test_every_mask_and_option(name):
    check_both_orders(lambda *x: isentrope.attention(*x, **CASES[name]), tensors())


@pytest.mark.parametrize("name", quick_and_long(("full", "causal", "mask", "soft-cap", "dropout"), ("soft-cap",)))
def test_bias_sinks_and_lambdas(name):
    inputs = *tensors(), numbers(H, 1), numbers(H, S, K), numbers(H)

    def attend(q, k, v, lambda_, bias, sinks):
        output, s = isentrope.attention_rows(q, k, v, lambda_, bias=bias, sinks=sinks, return_stats=("entropy",), **CASES[name])
        return output, s.entropy

    check_both_orders(attend, inputs)


@pytest.mark.parametrize("queries, keys", [(1, 5), pytest.param(5, 1, marks=pytest.mark.long), pytest.param(5, 3, marks=pytest.mark.long)])
def test_unequal_lengths(queries, keys):
    check_both_orders(lambda *x: isentrope.attention(*x, causal=True), tensors(queries, keys))


@pytest.mark.parametrize("name", quick_and_long([*DIFFERENTIABLE, "all"], ("all",)))
def test_statistics(name):
    wanted = DIFFERENTIABLE if name == "all" else [name]

    def statistics(q, k):
        _, s = isentrope.attention(q, k, k, causal=True, return_stats=wanted)
        return tuple(getattr(s, name) for name in wanted)

    check_both_orders(statistics, tensors()[:2])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", QUICK)
def test_forward_over_forward(name, dtype):
    """The second derivative along t and u, weighted by w, is t times the derivative along u of the gradient of w."""
    x, t, u = ([part.detach().to(dtype) for part in (*tensors(), numbers(H, 1), numbers(H, S, K), numbers(H))] for _ in range(3))

    def attend(q, k, v, lambda_, bias, sinks):
        output, s = isentrope.attention_rows(q, k, v, lambda_, bias=bias, sinks=sinks, return_stats=DIFFERENTIABLE, **CASES[name])
        return output, *(getattr(s, name) for name in DIFFERENTIABLE)

    w = tuple(torch.randn_like(part) for part in attend(*x))
    want = torch.func.jvp(lambda *x: torch.func.vjp(attend, *x)[1](w), tuple(x), tuple(u))[1]

    def weighted(*t):
        second = torch.func.jvp(lambda *x: torch.func.jvp(attend, x, t)[1], tuple(x), tuple(u))[1]
        return sum((a * b).sum() for a, b in zip(second, w))

    got = weighted(*t), torch.func.grad(weighted, tuple(range(6)))(*t)
    total = sum((a * b).sum() for a, b in zip(want, t))
    assert_same(got, (total, want), 1e-9 if dtype is torch.float64 else 1e-3)


def test_documents():
    starts = torch.tensor([0, 2, 3]), torch.tensor([0, 1, 4])
    q, k, v = (x[0].transpose(0, 1) for x in tensors())
    check_both_orders(lambda *x: isentrope.varlen_attention(*x, *starts, causal=True), (q, k, v))


def ours(q, k, v):
    output, s = isentrope.attention(q, k, v, causal=True, return_stats=("entropy",))
    return output, s.entropy


def dense(q, k, v):
    """The same by torch's operators."""
    return by_definition(q, *(x.expand(-1, H, -1, -1) for x in (k, v)), torch.ones(S, K, dtype=torch.bool).tril(K - S))


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_compositions(name):
    x, t = (tuple(part.detach() for part in tensors()) for _ in range(2))
    assert_same(*(COMPOSITIONS[name](f, x, t) for f in (ours, dense)))


COMPILED = ("jvp", "dual numbers", "hessian", "grad of jvp", "jvp of grad")


@pytest.mark.parametrize("name", quick_and_long(COMPILED, ("grad of jvp",)))
def test_compiled_compositions(name):
    torch._dynamo.reset()
    x, t = (tuple(part.detach() for part in tensors()) for _ in range(2))
    function = lambda x, t: COMPOSITIONS[name](ours, x, t)  # noqa: E731
    assert_same(torch.compile(function, backend="aot_eager", fullgraph=True)(x, t), function(x, t))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "name, compiled",
    [("jvp", False), ("jvp of grad", False), ("create_graph", False),
     *(pytest.param(name, True, marks=pytest.mark.long) for name in ("jvp", "jvp of grad"))],
)  # fmt: skip
def test_float32_queries_over_16_bit_keys(name, compiled, dtype):
    """Products of bf16 round q and the weights at 2^-9."""
    torch._dynamo.reset()
    types = torch.float32, dtype, dtype
    x, t = (tuple(part.detach().to(kind) for part, kind in zip(tensors(), types)) for _ in range(2))
    compose = lambda x, t: COMPOSITIONS[name](ours, x, t)  # noqa: E731
    attend = torch.compile(compose, backend="aot_eager", fullgraph=True) if compiled else compose
    got, want = attend(x, t), compose(*(tuple(part.float() for part in parts) for parts in (x, t)))
    assert name == "jvp" or [part.dtype for part in got] == list(types)
    torch.testing.assert_close(list(got), list(want), rtol=2e-2, atol=2e-2, check_dtype=False)


def test_third_order_is_an_error():
    x = tuple(part.detach() for part in tensors())
    hessian = lambda q: torch.func.hessian(lambda q: square(ours)(q, *x[1:]))(q).square().sum()  # noqa: E731
    with pytest.raises(NotImplementedError, match="first or second order; got third order"):
        torch.func.grad(hessian)(x[0])


def test_a_row_without_keys_has_no_derivatives():
    x, t = (tuple(part.detach() for part in tensors()) for _ in range(2))
    attend = lambda *x: isentrope.attention(*x, attn_mask=MASK, return_stats=True)[0]  # noqa: E731
    bad = t[0].clone()
    bad[:, :, 1] = torch.nan
    tangent = torch.func.jvp(attend, x, (bad, *t[1:]))[1]
    assert (tangent[:, :, 1] == 0).all() and tangent.isfinite().all()


@pytest.mark.parametrize("at", range(3))
def test_one_input_has_tangents(at):
    x, t = (tuple(part.detach() for part in tensors()) for _ in range(2))
    functions = [lambda part, f=f: f(*x[:at], part, *x[at + 1 :]) for f in (ours, dense)]
    assert_same(*(torch.func.jvp(f, (x[at],), (t[at],))[1] for f in functions))
    assert_same(*(torch.autograd.functional.hvp(square(f), x[at], t[at])[1] for f in functions))
    assert_same(*(torch.func.grad(lambda part, f=f: torch.func.jvp(square(f), (part,), (t[at],))[1])(x[at]) for f in functions))


def test_needed_inputs_only():
    """Each subset of the inputs has the second order of all."""
    x = tensors()
    for subset in itertools.chain(*(itertools.combinations(range(3), count) for count in (1, 2))):
        leaves = [part.detach().requires_grad_(i in subset) for i, part in enumerate(x)]
        wanted = [leaves[i] for i in subset]
        found = []
        for f in (ours, dense):
            gradients = torch.autograd.grad(square(f)(*leaves), wanted, create_graph=True)
            found.append(torch.autograd.grad(sum(g.square().sum() for g in gradients), wanted))
        assert_same(*found)


def test_jagged_tensors_have_the_derivatives_that_torch_has():
    """torch's own views of jagged tensors have neither forward mode nor double backward."""
    starts, x = torch.tensor([0, 1, S]), numbers(S, H, D)

    def attend(x):
        nested = torch.nested.nested_tensor_from_jagged(x, starts).transpose(1, 2)
        return isentrope.attention(nested, nested, nested, causal=True).transpose(1, 2).values().square().sum()

    (gradient,) = torch.autograd.grad(attend(x), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="_nested_tensor_storage_offsets"):
        gradient.sum().backward()
    with pytest.raises(NotImplementedError, match="forward AD with _nested_view_from_jagged"):
        torch.func.jvp(attend, (x.detach(),), (x.detach(),))


def test_a_learned_scale():
    module = isentrope.SSMax(H, learn_b=True).double()

    def learned(q, k, v, s, b):
        return torch.func.functional_call(module, {"s": s, "b": b}, (q, k, v), {"causal": True})

    inputs = (*(part[:1] for part in tensors()), module.s, module.b)
    check_both_orders(learned, [part.detach().requires_grad_() for part in inputs])


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 3e-2), (torch.float16, 4e-3)])
def test_kernels_are_as_exact_as_the_reference(dtype, tolerance):
    x, t = (tuple(part.detach() for part in tensors()) for _ in range(2))
    low = lambda tensors: tuple(part.to(dtype) for part in tensors)  # noqa: E731
    x, t = ([part.double() for part in low(tensors)] for tensors in (x, t))
    for name in ("jvp", "create_graph", "jvp of grad", "grad of jvp"):
        want, got = COMPOSITIONS[name](ours, tuple(x), tuple(t)), COMPOSITIONS[name](ours, low(x), low(t))
        leaves = torch.utils._pytree.tree_leaves
        scale = max(float(part.abs().max()) for part in leaves(want))
        torch.testing.assert_close(leaves(got), leaves(want), rtol=tolerance, atol=tolerance * scale, check_dtype=False)


def test_memory_of_a_jvp():
    """In MB. The weights of 24,000 keys would take 2,300 a head."""

    def resident(key):
        return int(re.search(rf"{key}:\s*(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1e3

    x = tuple(torch.randn(1, 2, 24_000, 64) for _ in range(3))
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = resident("VmRSS")
    torch.func.jvp(lambda *x: isentrope.attention(*x, window_size=(64, 64)), x, x)
    assert resident("VmHWM") - before < 300


def test_autocast():
    """Under autocast tangents and second derivatives are those of the rounded inputs."""
    x, t = (tuple(part.detach().float() for part in tensors()) for _ in range(2))
    rounded = lambda *x: isentrope.attention(*(part.bfloat16() for part in x), causal=True).float()  # noqa: E731
    with torch.autocast("cpu", torch.bfloat16):
        cast = lambda *x: isentrope.attention(*x, causal=True).float()  # noqa: E731
        got = torch.func.jvp(cast, x, t)[1], create_graph(lambda *x: [cast(*x)], x, t)
    assert_same(got, (torch.func.jvp(rounded, x, t)[1], create_graph(lambda *x: [rounded(*x)], x, t)))
