"""torch.func.vmap of the operators: one call for all samples, with the numbers of a loop."""

import pytest
import torch
from dispatched import Dispatched

import isentrope

N, B, H, KV, S, K, D = 3, 2, 4, 2, 5, 7, 8


def operators(calls):
    return [x._opname for x in calls.functions if x.namespace == "isentrope" and not x._opname.startswith("rule_")]


def tensors(*before):
    return [torch.randn(*before, B, h, rows, D) for h, rows in ((H, S), (KV, K), (KV, K))]


def attend(q, k, v, **options):
    return isentrope.attention(q, k, v, rule="entropy_invariant(base=7)", causal=True, return_stats=("entropy",), **options)


def loop(function, dims, args):
    samples = [function(*(x if dim is None else x.select(dim, i) for x, dim in zip(args, dims))) for i in range(N)]
    return [torch.stack(column) for column in zip(*samples)]


def check(function, dims, args, names):
    with Dispatched() as calls:
        got = torch.vmap(function, in_dims=dims)(*args)
    assert operators(calls) == names
    torch.testing.assert_close(list(got), loop(function, dims, args))


@pytest.mark.parametrize("dims", [(0, 0, 0), (0, 1, None), (3, None, None), (None, 2, 0)])
@pytest.mark.parametrize("batch", [B, 1])
def test_mapped_axes_join_the_batch(dims, batch):
    args = [x[:batch] if dim is None else torch.stack([x[:batch] + i for i in range(N)], dim) for x, dim in zip(tensors(), dims)]
    check(lambda *x: [attend(*x)[0], attend(*x)[1].entropy], dims, args, ["attention"] * 2)


OPTIONS = {
    "key_end": torch.randint(1, K, (N, B)),
    "attn_mask": torch.rand(N, 1, 1, K) > 0.3,
    "bias": torch.randn(N, H, 1, K),
    "sinks": torch.randn(N, H),
}


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("name", OPTIONS)
def test_so_do_those_of_options(name, mapped):
    option = OPTIONS[name] if mapped else OPTIONS[name][0]
    function = lambda q, x: (attend(q, *KEYS, **{name: x})[0],)  # noqa: E731
    check(function, (0, 0 if mapped else None), (torch.randn(N, B, H, S, D), option), ["attention"])


KEYS = tensors()[1:]


def test_lambdas():
    q, lambda_ = torch.randn(N, B, H, S, D), torch.rand(N, H, 1)
    function = lambda q, x: (isentrope.attention_rows(q, *KEYS, x),)  # noqa: E731
    check(function, (0, 0), (q, lambda_), ["attention"])


def test_documents():
    starts = torch.tensor([0, 2, S])
    function = lambda q, k: (isentrope.varlen_attention(q, k, k, starts, starts, causal=True),)  # noqa: E731
    check(function, (0, 1), (torch.randn(N, S, H, D), torch.randn(S, N, KV, D)), ["attention"])


def test_lengths_and_caches():
    q, k, _ = tensors(N)
    check(lambda q, k: [isentrope.row_lengths(q, k, causal=True)], (0, 0), (q, k), ["row_lengths"])
    check(isentrope.quantize, (1,), (torch.randn(B, N, KV, K, D),), ["quantize"])
    pages, table = torch.randn(6, KV, 4, D), torch.randint(0, 6, (N, B, 2))
    check(lambda q, table: [isentrope.decode(q, pages, pages, table)], (0, 0), (q[..., :1, :], table), ["decode"])
    # The pages of each sample are a cache of its own.
    check(lambda q, k: [isentrope.decode(q, k, k)], (0, 0), (q[..., :1, :], k), ["decode"] * N)


def test_dropout_is_that_of_each_sample():
    function = lambda q: (isentrope.attention(q, *KEYS, dropout_p=0.4, dropout_seed=3),)  # noqa: E731
    check(function, (0,), (torch.randn(N, B, H, S, D),), ["attention"] * N)


def test_heads_of_a_rule_stay_together():
    rule = f"ssmax(s=[{', '.join(str(0.1 * (1 + h)) for h in range(H))}])"
    function = lambda q, sinks: (isentrope.attention(q, *KEYS, rule=rule, sinks=sinks),)  # noqa: E731
    q = torch.randn(N, B, H, S, D)
    check(function, (0, None), (q, torch.randn(H)), ["attention"])
    check(function, (0, 0), (q, torch.randn(N, H)), ["attention"] * N)


@pytest.mark.parametrize("sinks", [None, torch.randn(H)])
def test_gradients_of_each_sample(sinks):
    keys = tensors()[1:]

    def loss(q, k, v, sinks, **options):
        output, s = attend(q, k, v, sinks=sinks, **options)
        return output.square().sum() + s.entropy.sum()

    wanted = (0, 1, 2) if sinks is None else (0, 1, 2, 3)
    dims, args = (0, None, None, None), (torch.randn(N, B, H, S, D), *keys, sinks)
    check(torch.func.grad(loss, wanted), dims, args, ["attention", "attention_backward"])
    ends, by_end = torch.randint(1, K, (N, B)), lambda *x: torch.func.grad(loss, wanted)(*x[:-1], key_end=x[-1])
    check(by_end, (*dims, 0), (*args, ends), ["attention"] + ["attention_backward"] * (1 if sinks is None else N))


def test_nested_levels():
    q = torch.randn(2, N, B, H, S, D)
    inner = torch.func.grad(lambda q, k: attend(q, k, k)[0].square().sum(), (0, 1))
    k = torch.randn(N, B, KV, K, D)
    with Dispatched() as calls:
        got = torch.vmap(torch.vmap(inner), in_dims=(0, None))(q, k)
    assert operators(calls) == ["attention", "attention_backward"]
    for i in range(2):
        torch.testing.assert_close([x[i] for x in got], loop(inner, (0, 0), (q[i], k)))


def test_no_samples_differ_from_the_call_of_all():
    """The samples of a batch, mapped one by one, have the bits of the batch."""
    q, k, v = (torch.randn(8, h, 16, D) for h in (H, KV, KV))
    want = isentrope.attention(q, k, v, causal=True)
    got = torch.vmap(lambda *x: isentrope.attention(*(t[None] for t in x), causal=True)[0])(q, k, v)
    assert torch.equal(got, want)
