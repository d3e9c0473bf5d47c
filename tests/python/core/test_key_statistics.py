"""Weights that keys receive, and their gradients, against dense float64 torch."""

import pytest
import torch
from dense import dense
from refusals import assert_refused
from test_attention import B, H, KV, K, S, masks, tensors

import isentrope


def with_lse(q, k, **options):
    """Returns the lse of each row."""
    return isentrope.attention(q, k, k, return_stats=("lse",), **options)[1].lse


def dense_weights(q, k, **options):
    """Returns p [batch, heads, queries, keys] in float64."""
    q, k = q.double(), k.double()
    options = {name: x.double() if torch.is_tensor(x) and x.is_floating_point() else x for name, x in options.items()}
    return dense(q, k, torch.eye(k.shape[2], dtype=torch.float64).expand(*k.shape[:2], -1, -1), **options)[0]


@pytest.mark.parametrize("name", masks())
@pytest.mark.parametrize("rule", ["standard", "entropy_invariant(base=7)"])
def test_keys_receive_the_sum_of_the_weights(name, rule):
    q, k, _ = tensors()
    options = masks()[name] | {"rule": rule}
    weights = torch.rand(B, H, S)
    p = dense_weights(q, k, **options)
    lse = with_lse(q, k, **options)
    got = isentrope.received(q, k, lse, weights=weights, **options)
    torch.testing.assert_close(got.double(), (weights[..., None] * p).sum(2), rtol=1e-5, atol=1e-5)
    of_groups = isentrope.received(q, k, lse, heads="key", **options)
    torch.testing.assert_close(of_groups.double(), p.sum(2).view(B, KV, -1, K).mean(2), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_of_16_bits_are_summed_in_float32(dtype):
    q, k, _ = tensors(dtype)
    got = isentrope.received(q, k, with_lse(q, k, causal=True), causal=True)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), dense_weights(q, k, causal=True).sum(2), rtol=1e-5, atol=1e-5)


def test_rows_of_weight_0_are_not_read():
    q, k, _ = tensors()
    last = (torch.arange(S) >= S - 3).float()  # SnapKV
    lse = with_lse(q, k)
    want = isentrope.received(q[:, :, -3:], k, lse[:, :, -3:])
    q[:, :, : S - 3] = lse[:, :, : S - 3] = torch.nan
    torch.testing.assert_close(isentrope.received(q, k, lse, weights=last), want, rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*float64 is computed by the reference")
@pytest.mark.parametrize("what", ["query", "key", "chosen"])
def test_gradients_are_those_of_differences(what):
    """Covers the weights that keys of both kinds of heads receive, and the weights of chosen keys."""
    q, k = (torch.randn(1, heads, 4, 3, dtype=torch.float64, requires_grad=True) for heads in (4, 2))
    weights, bias, sinks = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((1, 4, 4), (1, 1, 4, 4), (4,)))
    keys = torch.tensor([0, 2, 2, 5])  # one twice, and one that there is not

    def of(q, k, weights, bias, sinks):
        options = {"bias": bias, "sinks": sinks, "causal": True, "soft_cap": 2.0}
        lse = with_lse(q, k, **options)
        if what == "chosen":
            return isentrope.weights_at(q, k, lse, keys, **options)
        return isentrope.received(q, k, lse, weights=weights, heads=what, **options)

    torch.autograd.gradcheck(of, (q, k, weights, bias, sinks))


def test_gradients_agree_with_dense_ones():
    q, k = (x.requires_grad_() for x in tensors()[:2])
    weights, upstream = torch.rand(B, H, S, requires_grad=True), torch.randn(B, H, K)
    options = {"causal": True, "rule": "log_length"}
    got = torch.autograd.grad(
        isentrope.received(q, k, with_lse(q, k, **options), weights=weights, **options), (q, k, weights), upstream
    )
    want = torch.autograd.grad(
        (weights.double()[..., None] * dense_weights(q, k, **options)).sum(2), (q, k, weights), upstream.double()
    )
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.long)])
def test_compiled_functions_have_the_same_numbers_and_gradients(dtype):
    q, k = (x.requires_grad_() for x in tensors(dtype)[:2])

    def loss(q, k):
        lse = isentrope.attention(q, k, k, return_stats=("lse",), causal=True)[1].lse
        return isentrope.received(q, k, lse, causal=True).square().sum()

    want = torch.autograd.grad(loss(q, k), (q, k))
    got = torch.autograd.grad(torch.compile(loss, backend="aot_eager", fullgraph=True)(q, k), (q, k))
    torch.testing.assert_close(got, want)
    by_func = torch.func.grad(loss, argnums=(0, 1))(q, k)
    torch.testing.assert_close(by_func, want)
    meta = isentrope.received(q.detach().to("meta"), k.detach().to("meta"), torch.empty(B, H, S, device="meta"))
    assert meta.shape == (B, H, K) and meta.dtype == dtype


def test_samples_of_vmap_are_calls_of_their_own():
    q, k, lse = torch.randn(3, B, H, S, 16), torch.randn(B, KV, K, 16), torch.rand(3, B, H, S) + 3
    got = torch.func.vmap(lambda q, lse: isentrope.received(q, k, lse))(q, lse)
    torch.testing.assert_close(got, torch.stack([isentrope.received(*pair, k_lse) for pair, k_lse in zip(((x, k) for x in q), lse)]))


def test_packed_documents_receive_from_their_own_rows():
    q, k = torch.randn(30, H, 16), torch.randn(30, KV, 16)
    starts = torch.tensor([0, 12, 30])
    _, stats = isentrope.varlen_attention(q, k, k, starts, starts, causal=True, return_stats=("lse",))
    q, k = (x.transpose(0, 1).unsqueeze(0) for x in (q, k))
    got = isentrope.received(q, k, stats.lse.unsqueeze(0), causal=True, cu_seqlens_q=starts, cu_seqlens_k=starts)
    parts = [(q[:, :, a:b], k[:, :, a:b]) for a, b in ((0, 12), (12, 30))]
    want = [isentrope.received(*part, with_lse(*part, causal=True), causal=True) for part in parts]
    torch.testing.assert_close(got, torch.cat(want, 2))


@pytest.mark.parametrize("queries", [1, 11])  # a decode step, and a chunk of prefill
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int8])
@pytest.mark.filterwarnings("ignore:.*float64 is computed by the reference")
def test_pages_of_a_cache_are_read_as_keys(queries, dtype):
    numbers = torch.float32 if dtype == torch.int8 else dtype
    q, cache = torch.randn(2, H, queries, 16, dtype=numbers), torch.randn(9, KV, 8, 16, dtype=numbers)
    table, used = torch.tensor([[3, 0, 5], [8, 1, 2]]), torch.tensor([21, 13])
    scales, cache_of_call = {}, cache
    if dtype == torch.int8:
        cache_of_call, scale = isentrope.quantize(cache)
        scales, cache = {"k_scale": scale}, cache_of_call * scale
    both = scales | ({"v_scale": scales["k_scale"]} if scales else {})
    lse = isentrope.decode(q, cache_of_call, cache_of_call, table, used, return_stats=("lse",), **both)[1].lse
    got = isentrope.received(q, cache_of_call, lse, block_table=table, seqused_k=used, **scales)
    assert got.shape == (2, H, 24)
    for sequence, count in enumerate(used):
        k = cache[table[sequence]].transpose(0, 1).flatten(1, 2)[None, :, :count]
        want = isentrope.received(q[sequence : sequence + 1], k, lse[sequence : sequence + 1], causal=True)
        torch.testing.assert_close(got[sequence, :, :count], want[0])
        assert not got[sequence, :, count:].any()
    chosen = isentrope.weights_at(q, cache_of_call, lse, torch.arange(24), block_table=table, seqused_k=used, **scales)
    torch.testing.assert_close(chosen.sum(2), got)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("queries", [1, 2, 40])  # 40: after the call, as in `received`
@pytest.mark.parametrize("options", [{}, {"window_size": (9, 0), "soft_cap": 2.0}, {"sinks": torch.arange(float(H))}, {"dilation": 2}])
def test_a_decode_step_returns_what_keys_receive(dtype, queries, options):
    q, cache = torch.randn(3, H, queries, 16), torch.randn(9, KV, 30, 16)
    table, used = torch.tensor([[3, 0, 5], [8, 1, 2], [4, 4, 4]]), torch.tensor([81, 43, 0])
    q, cache, scales = q.to(dtype if dtype.is_floating_point else q.dtype), cache.to(dtype), {}
    if dtype == torch.int8:
        cache, scale = isentrope.quantize(torch.randn(cache.shape))
        scales = {"k_scale": scale, "v_scale": scale}
    want, stats = isentrope.decode(q, cache, cache, table, used, return_stats=("lse",), **scales, **options)
    output, received = isentrope.decode(q, cache, cache, table, used, return_received=True, **scales, **options)
    assert torch.equal(output, want) and received.shape == (3, H, 90)
    of_k = {name: x for name, x in scales.items() if name == "k_scale"}
    again = isentrope.received(q, cache, stats.lse, block_table=table, seqused_k=used, **of_k, **options)
    torch.testing.assert_close(received, again, rtol=1e-5, atol=1e-6)
    cache_nan = cache.clone()
    if dtype != torch.int8 and queries == 1 and not options:
        cache_nan[0, 0, 5] = torch.nan
        received = isentrope.decode(q, cache_nan, cache_nan, table, used, return_received=True)[1]
        seen = torch.zeros(3, H, 90, dtype=torch.bool)
        seen[0, : H // KV, :81] = True
        assert torch.equal(received.isnan(), seen)


def test_a_decode_step_over_a_cache_that_is_not_paged():
    q, k, _ = tensors()
    used = torch.tensor([20, K])
    lse = isentrope.decode(q[:, :, :1], k, k, None, used, return_stats=("lse",))[1].lse
    got = isentrope.received(q[:, :, :1], k, lse, seqused_k=used)
    torch.testing.assert_close(got.sum(2), torch.ones(B, H))
    assert not got[0, :, 20:].any()


@pytest.mark.parametrize("name", masks())
def test_weights_of_all_keys_are_the_matrix(name):
    q, k, _ = tensors()
    options = masks()[name] | {"rule": "entropy_invariant(base=7)"}
    keys = torch.arange(-1, K + 1)  # no row sees the first and the last
    got = isentrope.weights_at(q, k, with_lse(q, k, **options), keys, **options)
    assert got.shape == (B, H, S, K + 2) and not got[..., [0, -1]].any()
    torch.testing.assert_close(got[..., 1:-1].double(), dense_weights(q, k, **options), rtol=1e-5, atol=1e-6)


def test_gradients_of_chosen_weights_in_16_bits_and_compiled():
    q, k = (x.requires_grad_() for x in tensors(torch.bfloat16)[:2])
    previous = torch.arange(-1, S - 1)[:, None]  # RAUQ

    def loss(q, k):
        return isentrope.weights_at(q, k, with_lse(q, k, causal="top_left"), previous, causal="top_left").square().sum()

    want = torch.autograd.grad(dense_weights(q, k, causal="top_left").diagonal(-1, 2, 3).square().sum(), (q, k))
    for function in (loss, torch.compile(loss, backend="aot_eager", fullgraph=True)):
        torch.testing.assert_close(torch.autograd.grad(function(q, k), (q, k)), want, rtol=2e-2, atol=2e-3)
    torch.testing.assert_close(torch.func.grad(loss, argnums=(0, 1))(q, k), want, rtol=2e-2, atol=2e-3)


def test_hidden_keys_that_are_no_numbers_have_no_gradient():
    q, k, _ = tensors()
    options, chosen = {"key_end": torch.tensor([4, 4]), "soft_cap": 2.0}, torch.tensor([1, 7, 99])
    lse = with_lse(q, k, **options)
    loss = lambda *x: isentrope.weights_at(*x, lse, chosen, **options).square().sum()  # noqa: E731
    gradients = torch.func.grad(loss, (0, 1))
    torch.testing.assert_close(gradients(q, k.index_fill(2, torch.arange(4, K), torch.nan)), gradients(q, k))
    with pytest.raises(NotImplementedError, match=r"\[weights_at\] second derivatives with a soft_cap"):
        torch.func.grad(lambda k: gradients(q, k)[0].sum())(k)
    none = q.requires_grad_(), k[:, :, :0].requires_grad_()
    assert not any(x.any() for x in torch.autograd.grad(isentrope.weights_at(*none, lse, chosen).sum(), none))


def test_errors_name_the_function_and_the_argument():
    q, k, _ = tensors()
    lse = torch.zeros(B, H, S)
    for error, message, arguments in (
        (ValueError, r"\[received\] lse must have the shape \[2, 4, 19\]; got \[1, 4, 19\]", {"lse": lse[:1]}),
        (TypeError, r"\[received\] lse must be a floating-point tensor; got NoneType", {"lse": None}),
        (ValueError, r"\[received\] heads must be one of query, key; got 'all'", {"heads": "all"}),
        (ValueError, r"\[received\] weights must be broadcastable", {"weights": torch.ones(2, 3)}),
        (ValueError, r"\[received\] soft_cap must be finite and not negative", {"soft_cap": -1.0}),
        (ValueError, r"\[received\] causal must be", {"causal": "left"}),
        (ValueError, r"\[received\] k must be int8", {"k_scale": lse}),
        (TypeError, r"received\(\) got an unexpected keyword argument 'dropout_p'", {"dropout_p": 0.1}),
        (ValueError, r"\[received\] inputs must not require gradients over a cache",
         {"q": q.clone().requires_grad_(), "seqused_k": torch.tensor([3, 4])}),
    ):  # fmt: skip
        assert_refused(message, isentrope.received, error=error, **{"q": q, "k": k, "lse": lse} | arguments)
    one_too_many, floating = torch.zeros(7, 1, dtype=torch.int64), r"keys must be an int32 or int64 tensor; got float32"
    assert_refused(r"\[weights_at\] keys must be broadcastable", isentrope.weights_at, q, k, lse, one_too_many)
    assert_refused(rf"\[weights_at\] {floating}", isentrope.weights_at, q, k, lse, lse, error=TypeError)
    for cache in ({}, {"seqused_k": torch.tensor([3, 4])}):
        with pytest.raises(NotImplementedError, match=r"\[received\] forward-mode"):
            torch.func.jvp(lambda x, of=cache: isentrope.received(x, k, lse, **of), (q.detach(),), (q.detach(),))
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"\[received\] inputs must not"):
        torch.compile(isentrope.received, backend="eager", fullgraph=True)(q.clone().requires_grad_(), k, lse, **cache)
