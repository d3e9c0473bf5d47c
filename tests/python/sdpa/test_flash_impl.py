"""Isentrope in torch's registry of flash attention implementations, where it replaces operators on GPUs only.

No GPU is needed: the dispatcher's table is read, and the same implementations compute for the CPU, for which torch has none.
"""

import functools
import math

import pytest
import torch
from torch import nn
from torch.nn import attention
from torch.nn.attention.varlen import varlen_attn

import isentrope
from isentrope.sdpa.activation import active_rule

if not hasattr(attention, "restore_flash_attention_impl"):
    pytest.skip("this torch has no registry whose implementations can be ended", allow_module_level=True)

from isentrope.sdpa.flash import FlashOperators

OPS = torch.ops.aten
OPERATORS = [
    "_flash_attention_forward", "_flash_attention_backward", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_backward", "_flash_attention_forward_no_dropout_inplace",
]  # fmt: skip
RULE = "logn(train_len=4)"
STARTS_Q, STARTS_K = torch.tensor([0, 4, 5, 5, 9], dtype=torch.int32), torch.tensor([0, 6, 8, 11, 20], dtype=torch.int32)
"""Documents of 4, 1, 0, 4 queries and 6, 2, 3, 9 keys."""


def replaced_here(name, key):
    table = torch._C._dispatch_dump_table(f"aten::{name}")
    return any(line.startswith(f"{key}:") and "isentrope/sdpa/" in line for line in table.splitlines())


@pytest.fixture
def restored():
    yield
    attention.restore_flash_attention_impl(_raise_warn=False)
    isentrope.sdpa.set_flash_rule()


@pytest.fixture(params=["standard", RULE])
def rule(request):
    """The implementations on the CPU, under a rule."""
    library = torch.library.Library("aten", "IMPL")
    FlashOperators(request.param).register(library, "CPU")
    yield request.param
    library._destroy()


def packed(*shapes):
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def documents(requires_grad=True):
    return [x.requires_grad_(requires_grad) for x in packed((9, 4, 8), (20, 2, 8), (20, 2, 8))]


def test_activation_replaces_operators_on_gpus_until_it_is_restored(restored):
    assert "ISENTROPE" in attention.list_flash_attention_impls() and attention.current_flash_attention_impl() is None
    names = [name for name in OPERATORS if hasattr(OPS, name)]
    assert len(names) >= 4 and not any(replaced_here(name, "CUDA") for name in names)
    attention.activate_flash_attention_impl("ISENTROPE")
    assert attention.current_flash_attention_impl() == "ISENTROPE"
    assert all(replaced_here(name, "CUDA") and not replaced_here(name, "CPU") for name in names)
    # The function and the choice of a kernel stay torch's.
    assert not replaced_here("scaled_dot_product_attention", "CUDA")
    attention.activate_flash_attention_impl("ISENTROPE")
    attention.restore_flash_attention_impl()
    assert not any(replaced_here(name, "CUDA") for name in names)
    assert attention.current_flash_attention_impl() is None


def test_under_a_rule_the_function_is_replaced_on_gpus_too(restored):
    q = torch.randn(1, 2, 9, 16)
    want = nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    isentrope.sdpa.set_flash_rule(RULE)
    with pytest.raises(ValueError, match="rule"):
        isentrope.sdpa.set_flash_rule("no_rule")
    attention.activate_flash_attention_impl("ISENTROPE")
    for key in ("CUDA", "AutogradCUDA"):
        assert replaced_here("scaled_dot_product_attention", key)
    assert torch.equal(nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True), want)
    assert active_rule(q) == "standard" and active_rule(q.to("meta")) == RULE
    assert not torch.backends.mha.get_fastpath_enabled()
    attention.restore_flash_attention_impl()
    assert active_rule(q.to("meta")) == "standard" and torch.backends.mha.get_fastpath_enabled()


def test_two_ways_at_once_are_refused(restored):
    with isentrope.sdpa.activate(), pytest.raises(RuntimeError, match="must not be active already"):
        attention.activate_flash_attention_impl("ISENTROPE")
    assert attention.current_flash_attention_impl() is None
    attention.activate_flash_attention_impl("ISENTROPE")
    with pytest.raises(RuntimeError, match="must not be active already"):
        isentrope.sdpa.activate()


@pytest.mark.parametrize("layout", ["contiguous", "heads inside", "with gaps"])
@pytest.mark.parametrize("causal", [False, True])
def test_dense_calls_have_the_results_and_gradients_of_attention(rule, causal, layout):
    tensor = {
        "contiguous": lambda heads: torch.randn(2, heads, 7, 16),
        "heads inside": lambda heads: torch.randn(2, 7, heads, 16).transpose(1, 2),
        "with gaps": lambda heads: torch.randn(2, 7, 3, heads, 16)[:, :, 1].transpose(1, 2),
    }[layout]
    q, k, v = (tensor(heads).requires_grad_() for heads in (4, 2, 2))
    output, lse, *_, rng_state, _, _ = OPS._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, scale=0.3)
    want, statistics = isentrope.attention(q, k, v, rule=rule, scale=0.3, causal=causal, return_stats=["lse"])
    torch.testing.assert_close((output, lse), (want, statistics.lse))
    upstream = torch.randn(output.shape)
    got = torch.autograd.grad(output, (q, k, v), upstream)
    torch.testing.assert_close(got, torch.autograd.grad(want, (q, k, v), upstream))
    # Graphs that torch compiled rely on the layouts of its own operators.
    meta = [x.detach().as_strided(x.shape, x.stride()).to("meta") for x in (q, k, v)]
    like = OPS._scaled_dot_product_flash_attention(*meta, 0.0, causal)
    assert [x.stride() for x in (output, lse, rng_state)] == [like[i].stride() for i in (0, 1, 6)]
    assert rng_state.dtype == like[6].dtype and [x.stride() for x in got] == [torch.empty_like(x).stride() for x in meta]


def test_dropout_keeps_in_the_backward_pass_what_it_kept_in_the_forward_pass(rule):
    q, k, v = (torch.randn(2, 4, 9, 16, requires_grad=True) for _ in range(3))

    def call():
        return OPS._scaled_dot_product_flash_attention(q, k, v, 0.5, True)[0]

    torch.manual_seed(1)
    output = call()
    assert not torch.equal(output, call())
    torch.manual_seed(1)
    assert torch.equal(output, call())
    # The output is linear in v, by the weights that were kept.
    (dv,) = torch.autograd.grad(output.sum(), v)
    torch.testing.assert_close((dv * v).sum(), output.sum())


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (2, 0), (1, 1)])
def test_packed_documents_have_the_results_and_gradients_of_varlen_attention(rule, window):
    q, k, v = documents()
    arguments = STARTS_Q, STARTS_K, 4, 9
    output, lse = varlen_attn(
        q, k, v, *arguments, window_size=window, enable_gqa=True, return_aux=attention.varlen.AuxRequest(lse=True)
    )
    want, statistics = isentrope.varlen_attention(q, k, v, *arguments, window_size=window, rule=rule, return_stats=["lse"])
    torch.testing.assert_close((output, lse), (want, statistics.lse))
    upstream = torch.randn(output.shape)
    got = torch.autograd.grad(output, (q, k, v), upstream)
    torch.testing.assert_close(got, torch.autograd.grad(want, (q, k, v), upstream))


def wanted_by_document(q, keys, rule, window):
    """Each document alone; keys: of each its keys and values."""
    outputs = []
    for i, (k, v) in enumerate(keys):
        x = q[STARTS_Q[i] : STARTS_Q[i + 1]].transpose(0, 1)[None]
        causal = window[1] == 0
        options = {"rule": rule, "causal": causal, "window_size": window, "return_stats": ["lse"]}
        output, statistics = isentrope.attention(x, k.transpose(0, 1)[None], v.transpose(0, 1)[None], **options)
        outputs.append((output[0].transpose(0, 1), statistics.lse[0].transpose(0, 1)))
    return [torch.cat(x) for x in zip(*outputs)]


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (2, 0)])
@pytest.mark.parametrize("into", [False, True])
@pytest.mark.parametrize("paged", [False, True])
def test_pages_and_first_keys_of_each_document(rule, window, into, paged):
    if into and not hasattr(attention.varlen, "varlen_attn_out"):
        pytest.skip("this torch writes into no output of the caller's")
    q, k, v = documents(requires_grad=False)
    if paged:
        k, v = (torch.randn(11, 3, 2, 8) for _ in range(2))
        table = torch.tensor([[7, 1, 0], [4, 9, 9], [3, 3, 3], [10, 5, 2]], dtype=torch.int32)
        starts_k, used = None, torch.tensor([7, 2, 1, 9], dtype=torch.int32)
        keys = [[x[table[i].long()].flatten(0, 1)[: used[i]] for x in (k, v)] for i in range(4)]
    else:
        starts_k, table, used = STARTS_K, None, torch.tensor([5, 2, 0, 4], dtype=torch.int32)
        keys = [[x[STARTS_K[i] : STARTS_K[i] + used[i]] for x in (k, v)] for i in range(4)]
    want, want_lse = wanted_by_document(q, keys, rule, window)
    out = torch.empty_like(q)
    call = functools.partial(attention.varlen.varlen_attn_out, out) if into else varlen_attn
    output, lse = call(
        q, k, v, STARTS_Q, starts_k, 4, 9, return_aux=attention.varlen.AuxRequest(lse=True), window_size=window, enable_gqa=True,
        seqused_k=used, block_table=table,
    )  # fmt: skip
    torch.testing.assert_close((output, lse), (want, want_lse.transpose(0, 1)))
    assert not into or output is out


def test_sequences_of_one_length_are_not_copied(rule, monkeypatch):
    """A decode step of a server: one query for each sequence."""
    q, pages = torch.randn(3, 4, 8), torch.randn(5, 2, 2, 8)
    table, used = torch.tensor([[0, 1], [2, 3], [4, 4]], dtype=torch.int32), torch.tensor([3, 4, 1], dtype=torch.int32)
    starts = torch.arange(4, dtype=torch.int32)
    options = {"rule": rule, "return_stats": ["lse"], "causal": False}
    want, _ = isentrope.decode(q[:, :, None], pages.transpose(1, 2), pages.transpose(1, 2), table, used, **options)
    monkeypatch.setattr(torch, "searchsorted", None)
    got = varlen_attn(q, pages, pages, starts, None, 1, 4, enable_gqa=True, seqused_k=used, block_table=table)
    torch.testing.assert_close(got, want[:, :, 0])


def test_dense_caches(rule):
    q, k, v = torch.randn(2, 3, 4, 8), torch.randn(2, 7, 2, 8), torch.randn(2, 7, 2, 8)
    used = torch.tensor([5, 7], dtype=torch.int32)
    output, lse, *_ = OPS._flash_attention_forward(q, k, v, None, None, 3, 7, 0.0, True, False, seqused_k=used)
    for i, n in enumerate(used):
        x = (x[i : i + 1].transpose(1, 2) for x in (q, k[:, :n], v[:, :n]))
        want, statistics = isentrope.attention(*x, rule=rule, causal=True, return_stats=["lse"])
        torch.testing.assert_close((output[i], lse[i]), (want[0].transpose(0, 1), statistics.lse[0]))


def test_unsupported_arguments_are_errors_that_name_them(rule):
    q = torch.randn(1, 3, 2, 8)
    starts = torch.tensor([0, 3], dtype=torch.int32)

    def call(*arguments, value=q, **options):
        return OPS._flash_attention_forward(q, q, value, None, None, 3, 3, *arguments, **options)

    for name, arguments, options in (
        ("return_debug_mask", (0.0, False, True), {}),
        ("alibi_slopes", (0.0, False, False), {"alibi_slopes": torch.ones(2)}),
        ("value", (0.0, False, False), {"value": q[..., :4]}),
        ("dropout_p", (0.5, False, False), {"seqused_k": torch.tensor([3])}),
    ):
        with pytest.raises(RuntimeError, match=rf"\[flash_attention\] {name} must .*restore_flash_attention_impl"):
            call(*arguments, **options)
    pages, table = q[0][None], torch.zeros(1, 1, dtype=torch.int32)
    with pytest.raises(RuntimeError, match="seqused_k must be given with block_table"):
        varlen_attn(q[0], pages, pages, starts, None, 3, 3, block_table=table)
    with pytest.raises(RuntimeError, match="num_splits must be None"):
        varlen_attn(q[0], q[0], q[0], starts, starts, 3, 3, num_splits=1)


class Model(nn.Module):
    """Calls the operators as torch's functions do on a GPU."""

    def forward(self, q, k, v):
        dense = OPS._scaled_dot_product_flash_attention(*(x.transpose(0, 1)[None] for x in (q, k, v)), 0.0, True)[0]
        starts = torch.tensor([0, 3, 9], dtype=torch.int32)
        return dense[0].transpose(0, 1) + varlen_attn(q, k, v, starts, starts, 6, 6, window_size=(-1, 0))


def test_compiled_and_exported_models_call_torchs_operators(rule):
    """Whatever is active when they run computes them: here isentrope, and torch's own after restore_flash_attention_impl()."""
    q, k, v = packed(*[(9, 4, 8)] * 3)
    want = Model()(q, k, v)
    gradients = torch.autograd.grad(want.square().sum(), (q, k, v))
    compiled = torch.compile(Model(), backend="aot_eager", fullgraph=True)
    got = compiled(q, k, v)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(torch.autograd.grad(got.square().sum(), (q, k, v)), gradients)
    program = torch.export.export(Model(), (q, k, v))
    called = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert {"aten._scaled_dot_product_flash_attention.default", "torch_attn._varlen_attn.default"} <= called
    assert not any("isentrope" in name for name in called)
    torch.testing.assert_close(program.module()(q, k, v), want)


def test_the_rule_is_that_of_the_formula(rule):
    """One row of three keys by hand."""
    q, k, v = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 3, 8), torch.randn(1, 1, 3, 8)
    scale = 8**-0.5 * (1 if rule == "standard" else max(1, math.log(3) / math.log(4)))
    want = torch.softmax(scale * (q @ k.mT), -1) @ v
    torch.testing.assert_close(OPS._scaled_dot_product_flash_attention(q, k, v)[0], want)
