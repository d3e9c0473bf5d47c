"""Generated calls of isentrope.scaled_dot_product_attention, and of torch's function behind isentrope.sdpa.activate()."""

import collections
import random
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import isentrope

RULE = "logn(train_len=2)"
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def tensor(draw, shape, dtype):
    """Returns a tensor in one of four layouts; half of them require gradients."""
    layout = draw.choice(["contiguous", "expanded", "permuted", "gaps"])
    order = draw.sample(range(len(shape)), len(shape)) if layout == "permuted" else list(range(len(shape)))
    step = 2 if layout == "gaps" else 1
    stored = [shape[axis] * step for axis in order]
    if layout == "expanded":
        axis = draw.randrange(len(shape))
        stored[axis] = min(stored[axis], 1)
    x = torch.randn(stored).to(dtype).permute([order.index(axis) for axis in range(len(shape))])
    x = x[tuple(slice(None, None, step) for _ in shape)].expand(shape)
    return x.detach().requires_grad_(draw.random() < 0.5)


def generated_mask(draw, shape, dtype):
    shape = [size if draw.random() < 0.7 else 1 for size in shape][draw.choice([0, 0, 1, 2]) :]
    kind = draw.choice([torch.bool, torch.bool, dtype, torch.float32, torch.int64])
    if kind is torch.bool:
        return torch.rand(shape) > 0.3
    mask = torch.randn(shape).to(kind)
    if kind is not torch.int64 and draw.random() < 0.4:
        mask = mask.masked_fill(torch.rand(shape) > 0.6, -torch.inf)
    return mask.requires_grad_(kind is not torch.int64 and draw.random() < 0.2)


def generated_call(draw):
    """Returns arguments of a call, some of which torch refuses."""
    rows, keys, dim = draw.choice([0, 1, 5, 33]), draw.choice([0, 1, 7, 40]), draw.choice([0, 1, 8, 16])
    columns = draw.choice([dim, dim, 1, 5])
    batch = [draw.choice([0, 1, 2, 3]) for _ in range(draw.choice([0, 1, 2, 2, 2, 2, 3]))]
    shapes = {"query": [*batch, rows, dim], "key": [*batch, keys, dim], "value": [*batch, keys, columns]}
    options = {}
    if len(batch) > 0 and draw.random() < 0.3:
        options["enable_gqa"] = True
        for name, heads in (("query", [2, 4, 3]), ("key", [1, 2]), ("value", [2])):
            shapes[name][-3] = draw.choice(heads)
    elif draw.random() < 0.25:  # broadcast
        for shape in shapes.values():
            shape[:-2] = [size if draw.random() < 0.7 else 1 for size in shape[:-2]]
        del shapes[draw.choice(["query", "key"])][: len(batch) // 2]
    dtype = draw.choice([*[torch.float32] * 6, torch.bfloat16, torch.float16, torch.float64])
    if draw.random() < 0.5:
        options["attn_mask"] = generated_mask(draw, [*shapes["query"][:-1], keys], dtype)
    if draw.random() < (0.1 if "attn_mask" in options else 0.5):
        options["is_causal"] = True
    if draw.random() < 0.4:
        options["scale"] = draw.choice([0.0, -0.5, 0.3, 2])
    return {name: tensor(draw, shape, dtype) for name, shape in shapes.items()} | options


def results(call, function=F.scaled_dot_product_attention):
    """Returns output and gradients, or the name of the error."""
    try:
        output = function(**call)
    except Exception as error:
        return type(error).__name__
    # An empty output may have no gradients.
    inputs = [x for x in call.values() if isinstance(x, torch.Tensor) and x.requires_grad and output.requires_grad]
    weights = torch.linspace(-1, 1, output.numel()).reshape(output.shape).to(output.dtype)
    return output, *(torch.autograd.grad(output, inputs, weights, materialize_grads=True) if inputs else ())


def is_empty(call):
    return any(call[name].numel() == 0 for name in ("query", "key", "value"))


def described(call):
    return {k: (list(x.shape), x.stride(), x.dtype) if isinstance(x, torch.Tensor) else x for k, x in call.items()}


def test_every_call_is_torchs():
    draw, count = random.Random(0), collections.Counter()
    for _ in range(300):
        call = generated_call(draw)
        with sdpa_kernel(SDPBackend.MATH):
            want = results(call)
        with isentrope.sdpa.activate():
            got = results(call)
        count[type(want)] += 1
        if isinstance(want, str):
            assert got == want, described(call)
            continue
        # Torch's results of empty tensors have the shape of the queries, and not the broadcast one.
        dropped_in = want if is_empty(call) else results(call, isentrope.scaled_dot_product_attention)
        for a, b in zip((*got, *dropped_in), (*want, *want), strict=True):
            tolerance = TOLERANCE[a.dtype] * (1 if a is got[0] or a is dropped_in[0] else 10)
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, msg=lambda m: f"{m}\n{described(call)}")
    assert count[tuple] > 150 and count[str] > 20


def test_every_call_is_of_the_rule():
    draw, count = random.Random(1), collections.Counter()
    for _ in range(400):
        call = generated_call(draw)
        of_torch = results(call)
        with isentrope.sdpa.activate(RULE), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            got = results(call)
        if isinstance(of_torch, str) or is_empty(call):
            continue
        q = call["query"]
        if q.dtype == torch.float64:
            count["warned"] += 1
            assert f"under 1/sqrt(dim) and not under {RULE}" in str(warned[0].message)
            torch.testing.assert_close(got, of_torch, rtol=0, atol=0, equal_nan=True, msg="it stays torch's own")
            continue
        count["computed"] += 1
        assert not warned
        want = by_definition(**call)
        tolerance = TOLERANCE[q.dtype]
        torch.testing.assert_close(got[0].double(), want, rtol=tolerance, atol=tolerance, msg=lambda m: f"{m}\n{described(call)}")
    assert count["computed"] > 60 and count["warned"] > 3


def by_definition(query, key, value, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    """Computes the definition in float64 under RULE: lambda is scale times log2 of the keys that a row sees."""
    q, k, v = (x.detach().double() for x in (query, key, value))
    if enable_gqa:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = q @ k.transpose(-2, -1)
    bias = torch.zeros(scores.shape[-2:]).double()
    if is_causal:
        bias = bias.masked_fill(~torch.ones_like(bias).bool().tril(), -torch.inf)
    if attn_mask is not None:
        bias = torch.zeros(()).masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype is torch.bool else attn_mask.detach()
    bias = bias.double().expand(scores.shape)
    n = (bias > -torch.inf).sum(-1, keepdim=True)
    lambda_ = torch.tensor([isentrope.ScaleRule(RULE).lambda_(i, q.shape[-1]) for i in range(k.shape[-2] + 1)]).double()[n]
    if scale is not None:
        lambda_ = lambda_ * scale * q.shape[-1] ** 0.5
    return torch.softmax(lambda_ * scores + bias, -1).nan_to_num(0) @ v


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_of_the_rule(layout):
    sequences = [torch.randn(length, 4, 8) for length in (3, 5)]
    leaf = torch.nested.nested_tensor(sequences, layout=layout, requires_grad=True)
    x = leaf.transpose(1, 2)
    with isentrope.sdpa.activate(RULE):
        output = F.scaled_dot_product_attention(x, x, x)
        gradient = torch.autograd.grad(output, leaf, output.detach())[0]
    for got, d_got, one in zip(output.unbind(), gradient.unbind(), sequences):
        one.requires_grad_()
        heads = one.transpose(0, 1)[None]
        want = isentrope.attention(heads, heads, heads, rule=RULE)
        torch.testing.assert_close(got, want[0])
        torch.testing.assert_close(d_got, torch.autograd.grad(want, one, want.detach())[0])


def test_nested_tensors_have_dropout():
    x = torch.nested.nested_tensor([torch.randn(4, length, 8) for length in (3, 5)])
    with isentrope.sdpa.activate():
        output = F.scaled_dot_product_attention(x, x, torch.nested.as_nested_tensor([torch.ones_like(y) for y in x]), dropout_p=0.5)
    assert not torch.equal(output[0], torch.ones(4, 3, 8)) and output[1].shape == (4, 5, 8)


def test_dropout_is_compiled_with_shapes_that_change():
    compiled = torch.compile(
        lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5), backend="aot_eager", dynamic=True, fullgraph=True
    )
    with isentrope.sdpa.activate():
        for rows in (5, 7):
            x = torch.randn(2, 3, rows, 8, requires_grad=True)
            torch.manual_seed(1)
            want = isentrope.attention(x, x, x, dropout_p=0.5)
            torch.manual_seed(1)
            torch.testing.assert_close(compiled(x), want)


def test_dropouts_that_only_torch_takes_stay_torchs():
    q, k, v = torch.randn(3, 2, 3, 5, 8)
    with isentrope.sdpa.activate():
        assert torch.equal(F.scaled_dot_product_attention(q, k, v, dropout_p=1.0), torch.zeros_like(q))
        for refused in (1.5, -0.1, torch.nan):
            with pytest.raises(RuntimeError, match="dropout probability has to be between 0 and 1|not support dropout"):
                F.scaled_dot_product_attention(q, k, v, dropout_p=refused)


def test_a_mask_that_is_broadcast_is_not_saved_as_weights():
    q, saved = torch.randn(2, 3, 100, 8, requires_grad=True), []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.untyped_storage().nbytes()) or x, lambda x: x)
    with isentrope.sdpa.activate(), hooks:
        F.scaled_dot_product_attention(q, q, q, torch.ones(100, 100, dtype=torch.bool).tril())
    assert 0 < max(saved) <= 100 * 100 * 4  # bytes of the bias


def test_torch_func_differentiates():
    q = torch.randn(3, 4, 5, 8)
    loss = lambda x: F.scaled_dot_product_attention(x, x, x).square().sum()  # noqa: E731
    for x in (q, q[0]):
        leaf = x.clone().requires_grad_()
        with isentrope.sdpa.activate(RULE):
            want = torch.autograd.grad(loss(leaf), leaf)[0]
            torch.testing.assert_close(torch.func.grad(loss)(x), want)
            torch.testing.assert_close(torch.func.vmap(loss)(x).sum(), loss(x))
    with isentrope.sdpa.activate(RULE), pytest.warns(UserWarning, match="torch computes this call"):
        torch.func.grad(lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.1).sum())(q)


MODULES = {
    "attention": (torch.nn.MultiheadAttention(32, 4, batch_first=True), lambda m, x, pad: m(x, x, x, key_padding_mask=pad, need_weights=False)[0]),
    "encoder": (
        torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), 2),
        lambda m, x, pad: m(x, src_key_padding_mask=pad),
    ),
}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_modules_in_eval_mode_are_of_the_rule(name, padded):
    module, call = MODULES[name]
    x = torch.randn(2, 9, 32)
    pad = torch.arange(9) >= torch.tensor([[9], [6]]) if padded else None
    seen = slice(None) if pad is None else ~pad

    def outputs():
        results = []
        for train in (True, False):
            with torch.set_grad_enabled(train):
                results.append(call(module.train(train), x, pad)[seen].detach())
        return results

    plain = outputs()
    with isentrope.sdpa.activate():
        same = outputs()
        assert torch.backends.mha.get_fastpath_enabled()
    with isentrope.sdpa.activate(RULE):
        trained, evaluated = outputs()
    for got in (*same, plain[1]):
        torch.testing.assert_close(got, plain[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(evaluated, trained, rtol=1e-5, atol=1e-5)
    assert (trained - plain[0]).abs().max() > 1e-3
    assert torch.backends.mha.get_fastpath_enabled()
