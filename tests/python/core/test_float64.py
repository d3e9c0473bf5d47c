"""float64 tensors, computed by the reference with full precision, so that torch's gradcheck passes."""

import warnings

import pytest
import torch
from dense import DIFFERENTIABLE, dense

import isentrope
from isentrope._core.call import call_of

pytestmark = pytest.mark.filterwarnings("ignore:.*float64 is computed by the reference")

B, H, KV, S, K, D, DV = 2, 4, 2, 5, 7, 4, 3
RULE = "ssmax(s=[0.5, 1, 1.5, 2])"
CASES = {
    "none": {},
    "causal": {"causal": True},
    "window and padding": {"causal": True, "window_size": (3, -1), "key_begin": torch.tensor([0, 4])},
    "mask": {"attn_mask": torch.rand(H, S, K) > 0.4},
    "soft-cap": {"soft_cap": 1.5},
    "sinks": {"sinks": torch.randn(H).double()},
    "bias": {"bias": torch.randn(S, K).double().masked_fill(torch.rand(S, K) > 0.8, -torch.inf)},
}


def tensors(**shapes):
    shapes = shapes or {"q": (B, H, S, D), "k": (B, KV, K, D), "v": (B, KV, K, DV)}
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes.values()]


def close(got, want):
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_results_are_as_exact_as_the_type(name):
    q, k, v = tensors()
    output, s = isentrope.attention(q, k, v, rule=RULE, return_stats=True, **CASES[name])
    want, t = dense(q, k, v, RULE, **CASES[name])
    assert all(x.dtype == (torch.int64 if x is s.support else torch.float64) for x in (output, *s))
    close((output, *s), (want, *t))


# test_derivatives has the others, without these rules of heads.
@pytest.mark.parametrize("name", [name if name in ("mask", "sinks") else pytest.param(name, marks=pytest.mark.long) for name in CASES])
def test_gradcheck_passes(name):
    options = dict(CASES[name])
    learned = [option for option in ("sinks", "bias") if option in options]
    inputs = [x.requires_grad_() for x in (*tensors(), *(options.pop(option) for option in learned))]

    def function(q, k, v, *rest):
        passed = options | dict(zip(learned, rest))
        output, s = isentrope.attention(q, k, v, rule=RULE, return_stats=DIFFERENTIABLE, **passed)
        # lse of the row without keys is -inf, so it has no finite difference.
        return output, *(getattr(s, field).nan_to_num(neginf=0) for field in DIFFERENTIABLE)

    assert torch.autograd.gradcheck(function, inputs)


def test_gradcheck_passes_for_the_scale_of_each_row():
    inputs = [x.requires_grad_() for x in (*tensors(), torch.rand(H, S).double())]
    assert torch.autograd.gradcheck(lambda *x: isentrope.attention_rows(*x, causal=True, soft_cap=2.0), inputs)


def test_dropout_takes_the_same_weights_as_in_float32():
    inputs = [x.requires_grad_() for x in tensors()]
    options = {"dropout_p": 0.4, "dropout_seed": torch.tensor(7), "causal": True}
    in_float = isentrope.attention(*(x.float() for x in inputs), **options)
    torch.testing.assert_close(isentrope.attention(*inputs, **options).float(), in_float)
    assert torch.autograd.gradcheck(lambda *x: isentrope.attention(*x, **options), inputs)


def test_gradcheck_passes_for_packed_documents():
    inputs = tensors(q=(6, H, D), k=(7, KV, D), v=(7, KV, DV))
    starts = torch.tensor([0, 2, 6]), torch.tensor([0, 4, 7])
    packed = lambda q, k, v: isentrope.varlen_attention(q, k, v, *starts, rule=RULE)  # noqa: E731
    for a, b, c, d in ((0, 2, 0, 4), (2, 6, 4, 7)):
        one = [x.transpose(0, 1)[None] for x in (inputs[0][a:b], inputs[1][c:d], inputs[2][c:d])]
        close(packed(*inputs)[a:b], dense(*one, RULE)[0][0].transpose(0, 1))
    assert torch.autograd.gradcheck(packed, [x.requires_grad_() for x in inputs])


def test_decode_is_attention_over_the_pages():
    q, k, v = tensors(q=(2, H, 2, D), k=(6, KV, 3, D), v=(6, KV, 3, DV))
    table, used = torch.tensor([[4, 0, 2], [1, 5, 3]]), torch.tensor([8, 3])
    output, s = isentrope.decode(q, k, v, table, used, rule=RULE, return_stats=True)
    for batch, keys in enumerate(used):
        rows = [x[table[batch]].transpose(0, 1).flatten(1, 2)[None, :, :keys] for x in (k, v)]
        want, t = dense(q[batch : batch + 1], *rows, RULE, causal=True)
        close([x[batch] for x in (output, *s)], [x[0] for x in (want, *t)])


def test_strides_lengths_compilers_and_empty_tensors():
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors())
    output = isentrope.attention(q, k, v)
    assert output.stride() == torch.empty(B, S, H, DV).transpose(1, 2).stride()
    close(output, dense(q, k, v)[0])
    assert torch.equal(isentrope.row_lengths(q, k, causal=True), isentrope.row_lengths(q.float(), k.float(), causal=True))
    torch.library.opcheck(
        torch.ops.isentrope.attention.default,
        (*call_of(q.requires_grad_(), k, v), 3),
    )
    assert torch.equal(isentrope.attention(q, k[:, :, :0], v[:, :, :0]), torch.zeros(B, H, S, DV).double())
    assert isentrope.attention(q[:0], k[:0], v[:0]).shape == (0, H, S, DV)
    with torch.autocast("cpu", torch.bfloat16):  # leaves float64 unchanged
        close(isentrope.attention(q, k, v), output)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"k": torch.zeros(B, KV, K, D)}, "k must be float64; got float32"),
        ({"v": torch.zeros(B, KV, K - 1, DV).double()}, r"v must have shape"),
        ({"sinks": torch.zeros(3)}, r"sinks must have shape \[4\]; got \[3\]"),
        ({"rule": "ssmax(s=[1, 2])"}, "rule must have a number for each of the 4 heads"),
        ({"soft_cap": -1.0}, "soft_cap"),
        ({"cu_seqlens_q": torch.tensor([0, 9]), "cu_seqlens_k": torch.tensor([0, 7])}, "cu_seqlens_q"),
    ],
)
def test_errors_name_the_argument(change, words):
    call = call_of(**(dict(zip("qkv", tensors())) | change))
    with pytest.raises((ValueError, RuntimeError), match=words):
        torch.ops.isentrope.attention(*call, 0)


def test_gradients_must_have_the_shapes_of_their_results():
    call = call_of(*tensors())
    output, statistics, _ = torch.ops.isentrope.attention(*call, 1)
    for wrong in ((output[:, :1], None), (None, statistics[:, :, :1])):
        with pytest.raises((ValueError, RuntimeError), match="must have the shape of its result"):
            torch.ops.isentrope.attention_backward(*call, 1, output, statistics, *wrong, False, False, False, False)


def test_that_it_is_slow_is_said_once(monkeypatch):
    monkeypatch.setattr("isentrope._core.call._warned", False)
    q = torch.randn(1, 1, 2, 4, dtype=torch.float64)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        isentrope.attention(q.float(), q.float(), q.float())
        assert not warned
        for _ in range(3):
            isentrope.attention(q, q, q)
    (only,) = warned
    assert "float64 is computed by the reference" in str(only.message) and only.filename == __file__
