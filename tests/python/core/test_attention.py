"""Output, statistics and gradients against dense float64 torch, for every mask of the operator."""

import in_float32
import pytest
import torch
from dense import DIFFERENTIABLE, dense

import isentrope
from isentrope._core.library import STATISTICS

B, H, KV, S, K, D, DV = 2, 4, 2, 19, 31, 16, 24
RULE = "entropy_invariant(base=7)"


def tensors(dtype=torch.float32):
    make = lambda *shape: torch.randn(*shape, dtype=dtype)  # noqa: E731
    return make(B, H, S, D), make(B, KV, K, D), make(B, KV, K, DV)


def masks():
    generator = torch.Generator().manual_seed(1)
    random = torch.rand(B, H, S, K, generator=generator) > 0.4
    random[0, 0, 3] = False  # a row without keys
    bias = torch.randn(B, H, S, K, generator=generator)
    hiding = bias.masked_fill(torch.rand(B, H, S, K, generator=generator) > 0.8, -torch.inf)
    return {
        "none": {},
        "causal": {"causal": True},
        "causal top left": {"causal": "top_left"},
        "window": {"causal": True, "window_size": (5, -1)},
        "two-sided window": {"window_size": (3, 4)},
        "prefix": {"causal": True, "prefix_keys": 20, "key_end": torch.tensor([15, K])},
        "prefixes": {"causal": True, "prefix_keys": torch.tensor([K, 14]), "key_begin": torch.tensor([0, 3])},
        "prefix beside a window": {"window_size": (-1, 2), "prefix_keys": torch.tensor([17, 25])},
        "dilated": {"causal": True, "window_size": (20, -1), "dilation": 3},
        "dilated in a shard": {
            "causal": "top_left", "dilation": 4, "query_offset": 13, "key_offset": 6, "sequence_keys": 40,
            "key_begin": torch.tensor([0, 9]),
        },
        "dilated chunks": {"window_size": (7, 9), "dilation": 2, "chunk_size": 11},
        "chunks": {"causal": True, "chunk_size": 9},
        "chunks from the first key": {"chunk_size": 5, "window_size": (2, -1), "key_begin": torch.tensor([0, 3])},
        "padding left": {"causal": True, "key_begin": torch.tensor([0, 17])},
        "padding right": {"key_end": torch.tensor([K, 9])},
        "all padding": {"key_end": torch.tensor([K, 0])},
        "queries of a chunk": {"causal": "top_left", "query_offset": 9},
        "keys of a shard": {"causal": "top_left", "query_offset": 12, "key_offset": 6, "sequence_keys": 40},
        "causal keys of a shard": {"causal": True, "query_offset": 12, "key_offset": 6, "sequence_keys": 40},
        "end of a sequence": {"causal": "top_left", "query_offset": 18, "key_offset": 6},
        "padding in a shard": {"key_offset": 3, "sequence_keys": 36, "key_begin": torch.tensor([2, 11])},
        "window in a shard": {
            "causal": "top_left", "window_size": (7, -1), "query_offset": 3, "key_offset": 5, "sequence_keys": 50,
        },
        "mask": {"attn_mask": random},
        "broadcast mask": {"attn_mask": random[:, :1, :1]},
        "bias": {"bias": bias},
        "hiding bias": {"bias": hiding},
        "soft-cap": {"causal": True, "soft_cap": 1.5},
        "sinks": {"causal": True, "sinks": torch.tensor([0.5, -1.0, 2.0, 0.0])},
        "everything": {
            "causal": True, "window_size": (12, -1), "attn_mask": random, "bias": bias[:1], "soft_cap": 2.0,
            "sinks": torch.randn(H, generator=generator), "key_begin": torch.tensor([2, 0]),
        },  # fmt: skip
    }


def in_double(options):
    floating = lambda x: isinstance(x, torch.Tensor) and x.is_floating_point()  # noqa: E731
    return {name: x.double() if floating(x) else x for name, x in options.items()}


@pytest.mark.parametrize("rule", ["standard", RULE, "ssmax(s=[0.1,0.2,0.3,0.4])"])
@pytest.mark.parametrize("name", masks())
def test_statistics_equal_dense_float64(name, rule):
    q, k, v = tensors()
    options = masks()[name]
    output, statistics = isentrope.attention(q, k, v, rule=rule, return_stats=True, **options)
    expected, wanted = dense(q.double(), k.double(), v.double(), rule, **in_double(options))
    torch.testing.assert_close(output.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(statistics._asdict(), wanted._asdict(), rtol=1e-5, atol=1e-5, check_dtype=False)


def assert_output_and_gradients_are_dense(options, fields=DIFFERENTIABLE):
    """Compares the output, and the gradients of a loss of output and statistics, with those of dense float64."""
    results = []
    for attention, dtype, asked in ((isentrope.attention, torch.float32, {"return_stats": True}), (dense, torch.float64, {})):
        torch.manual_seed(2)
        leaves = {n: x.to(dtype).requires_grad_() for n, x in zip("qkv", tensors())}
        passed = dict(options) if dtype == torch.float32 else in_double(options)
        for learned in {"bias", "sinks"} & passed.keys():
            leaves[learned] = passed[learned] = passed[learned].clone().requires_grad_()
        output, s = attention(*(leaves[name] for name in "qkv"), **passed, **asked)
        torch.manual_seed(3)
        loss = (output * torch.randn(output.shape)).sum()
        for field in fields:
            loss = loss + (torch.randn(s.support.shape) * torch.where(s.support > 0, getattr(s, field), 0)).sum()
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        results.append({"output": output.double()} | {n: x.double() for n, x in zip(leaves, gradients)})
    for name, want in results[1].items():
        scale = want.abs().max().clamp(min=1)
        torch.testing.assert_close(results[0][name] / scale, want / scale, rtol=0, atol=1e-5, msg=lambda m: f"{name}: {m}")


@pytest.mark.parametrize("name", masks())
def test_gradients_equal_dense_float64(name):
    assert_output_and_gradients_are_dense(masks()[name] | {"rule": RULE})


@pytest.mark.parametrize("field", DIFFERENTIABLE)
def test_a_statistic_alone_has_the_gradients_it_has_among_all(field):
    q, k, v = (x.requires_grad_() for x in tensors())

    def gradients(names):
        _, s = isentrope.attention(q, k, v, rule=RULE, return_stats=names)
        return torch.autograd.grad(getattr(s, field).square().sum(), (q, k))

    torch.testing.assert_close(gradients((field,)), gradients(True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_types(dtype):
    q, k, v = (x.to(dtype) for x in tensors())
    output, s = isentrope.attention(q, k, v, rule=RULE, causal=True, return_stats=("entropy", "support"))
    expected, wanted = dense(q.double(), k.double(), v.double(), RULE, causal=True)
    assert output.dtype == dtype and s.entropy.dtype == torch.float32 and s.lse is None
    torch.testing.assert_close(output.double(), expected, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(s.entropy.double(), wanted.entropy, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("permuted", [(0, 2, 1, 3), (2, 0, 1, 3), (0, 1, 3, 2)])
def test_any_strides_give_the_same_bits(permuted):
    q, k, v = tensors()
    want = isentrope.attention(q, k, v, causal=True)
    back = [permuted.index(axis) for axis in range(4)]
    q, k, v = (x.permute(permuted).contiguous().permute(back) for x in (q, k, v))
    assert not q.is_contiguous()
    assert torch.equal(isentrope.attention(q, k, v, causal=True), want)


def test_expanded_inputs():
    q, k, v = tensors()
    k, v = k[:, :1].expand(B, H, K, D), v[:, :1].expand(B, H, K, DV)
    want = isentrope.attention(q, k.contiguous(), v.contiguous(), causal=True)
    assert torch.equal(isentrope.attention(q, k, v, causal=True), want)


def test_output_is_laid_out_as_a_projection_leaves_it():
    q, k, v = (torch.randn(2, 7, 3, 8).transpose(1, 2) for _ in range(3))
    output = isentrope.attention(q, k, v)
    assert output.transpose(1, 2).is_contiguous()


@pytest.mark.parametrize("shape, keys", [((0, 2, 3, 4), 5), ((2, 0, 3, 4), 5), ((2, 2, 0, 4), 5), ((1, 2, 3, 4), 0)])
def test_without_batch_heads_queries_or_keys_rows_are_empty(shape, keys):
    q, k = (torch.randn(*shape[:2], rows, 4, requires_grad=True) for rows in (shape[2], keys))
    output, s = isentrope.attention(q, k, k, return_stats=True)
    assert torch.equal(output, torch.zeros(shape)) and s.entropy.shape == s.support.shape == shape[:3]
    assert (s.lse == -torch.inf).all() and not s.support.any() and not s.entropy.any()
    (output.sum() + s.entropy.sum()).backward()
    assert not q.grad.any() and not k.grad.any()


def test_only_what_was_asked_for_comes_back():
    q, k, v = tensors()
    _, s = isentrope.attention(q, k, v, return_stats=("max_logit", "collision"))
    assert [name for name, x in zip(s._fields, s) if x is not None] == ["collision", "max_logit"]
    assert torch.equal(s.effective_keys, 1 / s.collision)
    with pytest.raises(ValueError, match="return_stats must contain 'lambda_' for gradient_mass"):
        _ = s.gradient_mass


def test_scale_takes_the_place_of_the_rules_base():
    q, k, v = tensors()
    _, s = isentrope.attention(q, k, v, rule=RULE, scale=0.5, return_stats=("lambda_",))
    _, plain = isentrope.attention(q, k, v, rule=RULE, return_stats=("lambda_",))
    torch.testing.assert_close(s.lambda_, plain.lambda_ * 0.5 * D**0.5)


@pytest.mark.parametrize("rule", ["standard", "log_length", "xai_temperature(len=3)"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.filterwarnings("ignore:.attention. float64")
def test_a_negative_scale_is_that_of_turned_queries(rule, dtype):
    q, k, v = (x.to(dtype) for x in tensors())

    def results(q, scale):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        output, statistics = isentrope.attention(*leaves, rule=rule, scale=scale, causal=True, soft_cap=3.0, return_stats=True)
        total = output.double().sum() + statistics.entropy.double().sum()
        return output, *(x for x in statistics), *torch.autograd.grad(total, leaves)

    got, want = results(q, -0.3), results(-q, 0.3)
    of_q, of_lambda = 1 + len(STATISTICS), 1 + [statistic["name"] for statistic in STATISTICS].index("lambda_")
    for index, (a, b) in enumerate(zip(got, want)):
        torch.testing.assert_close(a, -b if index in (of_q, of_lambda) else b)


def test_n_is_what_the_row_sees_by_default():
    q, k = torch.randn(1, 1, 5, 16), torch.randn(1, 1, 70, 16)

    def lambdas(rule="log_length", **options):
        return isentrope.attention(q, k, k, rule=rule, return_stats=("lambda_",), **options)[1].lambda_.flatten()

    torch.testing.assert_close(lambdas(causal=True), torch.arange(66, 71).log() / 4)
    torch.testing.assert_close(lambdas(causal="top_left"), torch.arange(1, 6).log() / 4)
    torch.testing.assert_close(lambdas("log_length(length=total)", causal=True), torch.full((5,), 70.0).log() / 4)


def test_rows_with_given_lambda():
    q, k, v = tensors()
    lambda_ = torch.rand(B, 1, S, requires_grad=True)
    output, s = isentrope.attention_rows(q, k, v, lambda_, causal=True, return_stats=True)
    wide = lambda_.detach().double().requires_grad_()
    expected, wanted = dense(q.double(), k.double(), v.double(), lambda_=wide, causal=True)
    torch.testing.assert_close(output.double(), expected, rtol=1e-5, atol=1e-5)
    for field in (*DIFFERENTIABLE, "lambda_"):
        totals = [(result.sum() + getattr(of_rows, field).sum(), x) for result, of_rows, x in ((output, s, lambda_), (expected, wanted, wide))]
        got, want = (torch.autograd.grad(*pair, retain_graph=True)[0].double() for pair in totals)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_autocast_takes_the_short_type():
    q, k, v = tensors()
    with torch.autocast("cpu", torch.bfloat16):
        output = isentrope.attention(q, k, v, bias=torch.zeros(S, K))
    assert output.dtype == torch.bfloat16
    want = isentrope.attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), bias=torch.zeros(S, K))
    assert torch.equal(output, want)


def test_a_training_step_lowers_the_distance_to_a_target_entropy():
    q, k, v = (torch.randn(1, 2, 32, 16) for _ in range(3))
    module = isentrope.SSMax(2, s=0.1)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.02)
    distances = []
    for _ in range(20):
        _, s = module(q, k, v, causal=True, return_stats=("entropy",))
        loss = (s.entropy[..., 8:] - 1.0).square().mean()
        distances.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert distances[-1] < 0.5 * distances[0]


def test_ssmax_module_is_the_rule():
    q, k, v = tensors()
    module = isentrope.SSMax(H, s=0.3, b=0.2)
    for options in ({"causal": True}, {"attn_mask": masks()["mask"]["attn_mask"]}, {"key_end": torch.tensor([K, 4])}):
        want = isentrope.attention(q, k, v, rule="ssmax(s=0.3, b=0.2)", **options)
        torch.testing.assert_close(module(q, k, v, **options), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_in_float32_are_those_before_rounding(dtype):
    q, k, v = (x.to(dtype) for x in tensors())
    in_float32.are_those_before_rounding(q, k, v)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_float32_queries_read_16_bit_keys(dtype):
    """Products of bf16 round q and the weights at 2^-9."""
    q, k, v = tensors()
    inputs = [x.requires_grad_() for x in (q, k.to(dtype), v.to(dtype))]
    wide = [x.detach().float().requires_grad_() for x in inputs]
    output, expected = (isentrope.attention(*x, rule=RULE, causal=True) for x in (inputs, wide))
    upstream = torch.randn_like(expected)
    results = output, *torch.autograd.grad(output, inputs, upstream)
    assert [x.dtype for x in results] == [torch.float32, torch.float32, dtype, dtype]
    wanted = expected, *torch.autograd.grad(expected, wide, upstream)
    torch.testing.assert_close(results, wanted, rtol=2e-2, atol=2e-2, check_dtype=False)
    with torch.no_grad():
        torch.testing.assert_close(isentrope.decode(*inputs, rule=RULE), expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("keys", [7, 700, 1500])
def test_of_several_largest_keys_the_first_takes_the_gradient(keys):
    """Equal keys share the weight, and one gets the gradient: blocks of keys agree on it."""
    q = torch.ones(1, 1, 3, 16)
    k = torch.zeros(1, 1, keys, 16)
    k[0, 0, [keys // 2, keys - 1]] = 1.0
    k.requires_grad_()
    _, statistics = isentrope.attention(q, k, torch.ones(1, 1, keys, 16), scale=1.0, return_stats="max_probability")
    masses = statistics.max_probability
    p = 1 / (2 + (keys - 2) * torch.exp(torch.tensor(-16.0)))
    torch.testing.assert_close(masses, p.expand_as(masses))
    assert statistics.max_logit is None
    slope = torch.autograd.grad(masses.sum(), k)[0][0, 0, :, 0] / 3
    torch.testing.assert_close(slope[keys // 2], p * (1 - p), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(slope[keys - 1], -p * p, rtol=1e-4, atol=1e-6)
