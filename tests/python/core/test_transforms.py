"""Operators under torch's transforms: opcheck, compile, export, torch.func. test_derivatives has checkpoints."""

import pytest
import torch
from torch.autograd import forward_ad

import isentrope
from isentrope._core.call import Call
from isentrope.statistics import ALL

B, H, KV, S, K, D = 2, 4, 2, 9, 11, 8
RULE = "entropy_invariant(base=7)"


def tensors(requires_grad=False):
    make = lambda h, s: torch.randn(B, h, s, D, requires_grad=requires_grad)  # noqa: E731
    return make(H, S), make(KV, K), make(KV, K)


def both(q, k, v):
    output, s = isentrope.attention(q, k, v, rule=RULE, causal=True, return_stats=("entropy",))
    return output, s.entropy


def samples():
    q, k, v = tensors(True)
    learned = {"bias": torch.randn(B, H, S, K, requires_grad=True), "sinks": torch.randn(H, requires_grad=True)}

    def call(**options):
        return Call(q, k, v, rule=RULE, causal=2, **options)

    return {
        "plain": call(),
        "padded": call(key_end=torch.tensor([K, 3])),
        "masked": call(attn_mask=torch.rand(B, H, S, K) > 0.5),
        "dropped": call(dropout_p=0.5, dropout_seed=torch.tensor(5)),
        "learned": call(lambda_=torch.rand(B, H, S, requires_grad=True), **learned),
    }


@pytest.mark.parametrize("wanted", [pytest.param(0b1, marks=pytest.mark.long), ALL])
@pytest.mark.parametrize("name", ["dropped", "learned", *(pytest.param(x, marks=pytest.mark.long) for x in ("plain", "padded", "masked"))])
def test_opcheck(name, wanted):
    torch.library.opcheck(torch.ops.isentrope.attention.default, (*samples()[name], wanted))


def test_opcheck_heads_inside_rows():
    q, k, v = (torch.randn(B, 5, H, D).transpose(1, 2).requires_grad_() for _ in range(3))
    call = Call(q, k, v, rule=RULE)
    torch.library.opcheck(torch.ops.isentrope.attention.default, (*call, ALL))


def test_opcheck_of_the_others():  # long_fake_tensors has schemas and shapes of all
    call = [x.detach() if isinstance(x, torch.Tensor) else x for x in samples()["plain"]]
    torch.library.opcheck(torch.ops.isentrope.row_lengths.default, call)
    table, used = torch.tensor([[0], [1]], dtype=torch.int32), torch.tensor([9, 11])
    torch.library.opcheck(torch.ops.isentrope.decode.default, (*call, table, used, None, ALL))


@pytest.mark.parametrize("dynamic, backend", [
    (False, "aot_eager"),
    # Inductor's C++ compiler takes 18 s of processor time.
    pytest.param(False, "inductor", marks=pytest.mark.long), pytest.param(True, "inductor", marks=pytest.mark.long),
])  # fmt: skip
def test_compile(dynamic, backend):
    compiled = torch.compile(both, fullgraph=True, dynamic=dynamic, backend=backend)
    for length in (K, K + 4) if dynamic else (K,):
        q = torch.randn(B, H, length, D, requires_grad=True)
        k = torch.randn(B, KV, length, D, requires_grad=True)
        want, got = both(q, k, k), compiled(q, k, k)
        torch.testing.assert_close(*((*x, *torch.autograd.grad(x[0].sum() + x[1].sum(), (q, k))) for x in (got, want)))


def test_compile_does_not_compile_again_for_every_offset():
    counter = torch._dynamo.testing.CompileCounter()

    @torch.compile(fullgraph=True, dynamic=True, backend=counter)
    def step(q, k, offset):
        return isentrope.attention(q, k, k, causal="top_left", query_offset=offset)

    q, k, _ = tensors()
    for offset in range(2, 7):
        want = isentrope.attention(q, k, k, causal="top_left", query_offset=offset)
        torch.testing.assert_close(step(q, k, offset), want)
    assert counter.frame_count <= 2


def test_export_with_a_dynamic_length():
    class Module(torch.nn.Module):
        def forward(self, q, k, v):
            return both(q, k, v)

    length = torch.export.Dim("length", min=2, max=64)
    shapes = {"q": {2: length}, "k": {2: length}, "v": {2: length}}
    exported = torch.export.export(Module(), tuple(torch.randn(B, 2, 8, D) for _ in range(3)), dynamic_shapes=shapes)
    longer = tuple(torch.randn(B, 2, 13, D) for _ in range(3))
    torch.testing.assert_close(exported.module()(*longer), both(*longer))


@pytest.mark.parametrize("bits", [8, 32])
def test_forward_mode_through_decode_is_an_error(bits):
    q, cache, _ = tensors()
    scales = {}
    if bits == 8:
        cache, scale = isentrope.quantize(cache)
        scales = {"k_scale": scale, "v_scale": scale}
    table, used = torch.tensor([[0], [1]]), torch.tensor([K, K])
    decode = lambda q: isentrope.decode(q, cache, cache, table, used, **scales)  # noqa: E731
    with pytest.raises(NotImplementedError, match="forward-mode"):
        torch.func.jvp(decode, (q,), (torch.ones_like(q),))
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward-mode"):
        decode(forward_ad.make_dual(q, torch.ones_like(q)))
    with forward_ad.dual_level():
        assert decode(q).isfinite().all(), "of constants there are none"
