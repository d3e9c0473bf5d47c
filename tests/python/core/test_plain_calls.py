"""Operators of plain calls (q, k, v, a rule and a causal mask) give the same results as the general ones."""

import warnings

import pytest
import torch
from dispatched import Dispatched
from torch.overrides import TorchFunctionMode

import isentrope
from isentrope import functions
from isentrope._core.observers import Listener, listeners
from isentrope._core.attend import attend
from isentrope._core.call import call_of
from isentrope.statistics import Statistics

RULE = "entropy_invariant(base=512)"
OPTIONS = [{}, {"rule": RULE, "causal": True}, {"scale": 0.3, "causal": "top_left"}]


def tensors(dtype=torch.float32, queries=5, keys=7, heads_inside=False, **options):
    def one(heads, rows, columns):
        x = torch.randn(2, heads, rows, columns).to(dtype)
        x = x.transpose(1, 2).contiguous().transpose(1, 2) if heads_inside else x
        return x.detach().requires_grad_(options.get("requires_grad", False))

    return one(4, queries, 8), one(2, keys, 8), one(2, keys, 6)


def the_long_way(q, k, v, return_stats=False, **options):
    return attend(call_of(q, k, v, **options), return_stats)


@pytest.fixture
def long_ways(monkeypatch):
    """Counts the calls of the general operators."""
    taken = []
    monkeypatch.setattr(functions, "attend", lambda *args: taken.append(1) or attend(*args))
    return taken


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("heads_inside", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_results_are_the_same_to_the_bit(dtype, heads_inside, options, long_ways):
    q, k, v = tensors(dtype, heads_inside=heads_inside)
    wanted = the_long_way(q, k, v, **options)
    output = isentrope.attention(q, k, v, **options)
    assert torch.equal(output, wanted) and output.stride() == wanted.stride()
    for names in [True, "entropy", ("support", "lse"), ("lambda_",), (), ("collision", "max_probability", "collision")]:
        of_all, all_wanted = the_long_way(q, k, v, names, **options)
        output, statistics = isentrope.attention(q, k, v, return_stats=names, **options)
        assert torch.equal(output, of_all) and isinstance(statistics, Statistics)
        for got, want in zip(statistics, all_wanted, strict=True):
            assert (got is None) == (want is None)
            assert got is None or (torch.equal(got, want) and got.dtype == want.dtype and not got.requires_grad)
    assert long_ways == []


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("heads_inside", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_the_same_to_the_bit(dtype, heads_inside, options, long_ways):
    leaves = tensors(dtype, heads_inside=heads_inside, requires_grad=True)
    outputs = isentrope.attention(*leaves, **options), the_long_way(*leaves, **options)
    upstream = torch.randn_like(outputs[0])
    of_plain, of_other = (torch.autograd.grad(output, leaves, upstream) for output in outputs)
    assert len(long_ways) == 0
    for got, want in zip(of_plain, of_other, strict=True):
        assert torch.equal(got, want) and got.stride() == want.stride()


def test_some_gradients_alone():
    for index in range(3):
        leaves = tensors()
        leaves[index].requires_grad_()
        (wanted,) = torch.autograd.grad(the_long_way(*leaves).sum(), leaves[index])
        isentrope.attention(*leaves).sum().backward()
        assert torch.equal(leaves[index].grad, wanted)
        assert [x.grad is None for x in leaves].count(True) == 2


class Called(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "watching",
    [
        Dispatched,
        Called,
        lambda: torch.autocast("cpu"),
        torch.autograd.forward_ad.dual_level,
        lambda: listeners.having(Listener(("lse",), lambda call, statistics: None)),
    ],
)
def test_whoever_watches_sees_the_long_way(watching, long_ways):
    q, k, v = tensors()
    with watching():
        isentrope.attention(q, k, v)
    assert len(long_ways) == 1
    isentrope.attention(q, k, v)
    assert len(long_ways) == 1


def test_transforms_and_traces_take_the_long_way(long_ways):
    q, k, v = tensors()
    together = torch.vmap(isentrope.attention)(*(torch.stack([x, -x]) for x in (q, k, v)))
    assert torch.equal(together[1], -isentrope.attention(-q, -k, v)) and len(long_ways) == 1
    torch.jit.trace(isentrope.attention, (q, k, v), check_trace=False)
    assert len(long_ways) == 2


@pytest.mark.parametrize("option", [{"soft_cap": 5.0}, {"window_size": (2, 2)}, {"sinks": torch.zeros(4)}], ids=str)
def test_other_options_take_the_long_way(option, long_ways):
    isentrope.attention(*tensors(), **option)
    assert len(long_ways) == 1


def test_what_is_refused_takes_the_long_way(long_ways):
    q, k, v = tensors(torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # float64 is slow
        assert isentrope.attention(q, k, v).dtype == torch.float64
    with pytest.raises(ValueError, match=r"\[attention\] v must have shape"):
        isentrope.attention(*tensors()[:2], tensors(keys=6)[2])
    assert len(long_ways) == 2


def test_statistics_with_gradients_take_the_long_way(long_ways):
    leaves = tensors(requires_grad=True)
    isentrope.attention(*leaves, return_stats="entropy")[1].entropy.sum().backward()
    assert len(long_ways) == 1 and all(x.grad is not None for x in leaves[:2])


class WithoutGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, _):
        return None


def test_without_a_gradient_of_the_output_there_are_none():
    leaves = tensors(requires_grad=True)
    output = WithoutGradient.apply(isentrope.attention(*leaves)).sum()
    assert torch.autograd.grad(output, leaves, allow_unused=True) == (None, None, None)


def test_double_backward_is_that_of_the_long_way():
    leaves = tensors(requires_grad=True)
    found = []
    for way in (isentrope.attention, the_long_way):
        first = torch.autograd.grad(way(*leaves).square().sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(x.square().sum() for x in first), leaves))
    assert all(torch.equal(a, b) for a, b in zip(*found))


def test_saved_tensors_go_through_hooks():
    leaves, packed = tensors(requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(x.shape) or x.clone(), lambda x: x):
        output = isentrope.attention(*leaves)
    gradients = torch.autograd.grad(output.sum(), leaves)
    assert len(packed) == 5
    assert all(map(torch.equal, gradients, torch.autograd.grad(the_long_way(*leaves).sum(), leaves)))


def test_a_rule_that_changes_from_call_to_call_is_never_the_last_one():
    q, k, v = tensors()
    for rule in [RULE, "standard", RULE, "logn(4)", "standard"]:
        for causal in [True, False]:
            assert torch.equal(
                isentrope.attention(q, k, v, rule=rule, causal=causal), the_long_way(q, k, v, rule=rule, causal=causal)
            )
