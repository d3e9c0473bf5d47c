"""Functions with GPU tensors, as far as possible without a GPU: fake tensors have only shapes."""

import subprocess
import sys
import weakref
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from dispatched import Dispatched
from refusals import assert_refused
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

import isentrope
from isentrope.gpu import operands, operators, plan, prepared
from isentrope.gpu.kernels.forward import forward_kernel
from isentrope.sdpa import gpu as sdpa_gpu


def gpu(*shape, **options):
    return torch.empty(shape, device="cuda", **options)


def test_results_lie_where_q_does():
    with FakeTensorMode():
        q, k = gpu(1, 4, 8, 16, dtype=torch.bfloat16), gpu(1, 2, 8, 16, dtype=torch.bfloat16)
        output, statistics = isentrope.attention(q, k, k, return_stats=True)
        assert output.shape == q.shape and output.dtype == q.dtype
        assert all(x.device == output.device == q.device for x in statistics)


def test_tensors_on_several_devices_are_an_error():
    with FakeTensorMode():
        q, k = gpu(1, 2, 8, 16), torch.empty(1, 2, 8, 16)
        mask = torch.ones(8, 8, dtype=torch.bool)
        assert_refused("k must be on cuda:0, as q does; got cpu", isentrope.attention, q, k, q)
        assert_refused("attn_mask must be on cuda:0, as q does; got cpu", isentrope.attention, q, q, q, attn_mask=mask)


def test_the_operators_have_an_implementation_for_gpus():
    for name in ("attention", "attention.plain", "attention_backward", "attention_backward.plain", "decode", "row_lengths"):
        for key in ("CUDA", "XPU"):
            assert torch._C._dispatch_has_kernel_for_dispatch_key(f"isentrope::{name}", key)


def test_kernels_are_launched_where_their_tensors_lie(monkeypatch):
    """Another device may be the current one."""
    current = [0]

    @contextmanager
    def device(which):
        current.append(which.index)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[-1])
    launched_on = operators.on_its_device(lambda q: current[-1])
    with FakeTensorMode():
        assert launched_on(torch.empty(3, device="cuda:1")) == 1 and launched_on(torch.empty(3, device="cuda:0")) == 0
    assert current == [0] and launched_on(torch.empty(3)) == 0
    for name in ("attention", "attention.plain", "attention_backward", "attention_backward.plain", "decode", "row_lengths"):
        assert operators.implementation(name).__qualname__.startswith("on_its_device")


def test_without_triton_the_error_says_what_to_do():
    code = """
import sys
sys.modules["triton"] = None
from isentrope import _pytorch
try:
    _pytorch._in_triton("attention")()
except ModuleNotFoundError as error:
    print(error)
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "got an environment without: pip install triton, or move the call to the CPU" in process.stdout, process.stderr


def test_tensors_on_the_cpu_need_the_interpreter(monkeypatch):
    x = torch.zeros(1, 1, 4, 16)
    monkeypatch.setattr(isentrope.gpu, "_INTERPRETED", type("No", (), {"value": False}))
    for function, arguments in (("attention", (x, x, x)), ("decode", (x, x, x, None, None))):
        message = rf"\[{function}\] q must be on a CUDA or XPU device, or TRITON_INTERPRET=1"
        assert_refused(message, getattr(isentrope.gpu, function), *arguments)


@pytest.mark.parametrize("capability, kind, shared", [
    ((8, 0), "sm80", 164), ((8, 6), "sm80", 100), ((8, 7), "sm80", 164), ((8, 9), "sm80", 100), ((9, 0), "sm90", 228),
    ((10, 0), "sm100", 228), ((12, 0), "sm80", 100), ((7, 5), None, None),
])  # fmt: skip
def test_a_chip_has_the_tiles_and_the_shared_memory_of_its_capability(capability, kind, shared, monkeypatch):
    major, minor = capability
    card = type("Card", (), {"major": major, "minor": minor, "name": "T4", "multi_processor_count": 40})
    monkeypatch.setattr(plan, "INTERPRETED", type("No", (), {"value": False}))
    monkeypatch.setattr(torch, "get_device_module", lambda _: type("M", (), {"get_device_properties": lambda _: card}))
    chip_of, cuda = plan.chip_of.__wrapped__, torch.device("cuda")
    if kind is None:
        assert_refused(r"compute capability 8.0 or later; got 7.5 \(T4\): move the call to the CPU", chip_of, cuda)
    else:
        assert chip_of(cuda) == plan.Chip(kind, 40, "T4", shared << 10)


@pytest.mark.parametrize("changed, message", [
    ({"k": torch.zeros(1, 2, 6, 8)}, "k must have shape"),
    ({"rule": "lgn(512)"}, "did you mean logn"),
    ({"soft_cap": -1.0}, "soft_cap must be finite and not negative; got -1"),
    ({"key_end": torch.tensor([3, 4])}, r"key_end must have shape \[1\]; got \[2\]"),
    ({"sinks": torch.zeros(3)}, r"sinks must have shape \[2\]; got \[3\]"),
    (dict.fromkeys("qkv", torch.zeros(1, 1, 4, 257)), "q must have a head dimension of at most 256 on this device; got 257"),
    (dict.fromkeys("qkv", torch.zeros(1, 1, 4, 16).double()), "q must be float32, bfloat16 or float16; got float64"),
])  # fmt: skip
def test_errors_have_the_words_of_the_cpu(changed, message):
    call = {"q": torch.zeros(1, 2, 5, 16), "k": torch.zeros(1, 2, 6, 16), "v": torch.zeros(1, 2, 6, 16)} | changed
    assert_refused(message, isentrope.gpu.attention, **call)


def waits_for_nothing(function, args, kwargs, result):
    """Raises an error for operations that wait for a device: reads, dynamic sizes, copies to other devices."""
    name = function.overloadpacket.__name__
    assert name not in ("_local_scalar_dense", "equal", "nonzero", "masked_select"), function
    assert name != "_to_copy" or not kwargs.get("device"), function


@pytest.fixture
def grids(monkeypatch):
    """Replaces kernels by recorders of their grids."""
    recorded = []
    monkeypatch.setattr(forward_kernel.__class__, "run", lambda *_, grid, **__: recorded.append(grid))
    return recorded


def everything(queries=5):
    """Yields calls of all functions, with every kind of operand on the device, and a backward pass."""
    q = torch.randn(2, 2, queries, 16, requires_grad=True)
    k = torch.randn(2, 1, 7, 16, requires_grad=True)
    bias, sinks = torch.zeros(queries, 7, requires_grad=True), torch.zeros(2, requires_grad=True)
    masks = {"attn_mask": torch.ones(queries, 7, dtype=torch.bool), "key_end": torch.tensor([3, 7])}
    options = {"bias": bias, "sinks": sinks, "soft_cap": 5.0, "return_stats": True}
    yield lambda: isentrope.gpu.attention(q, k, k, **masks, **options, rule="log_length", causal=True)
    lambda_ = torch.ones(2, 2, queries, requires_grad=True)
    yield lambda: isentrope.gpu.attention_rows(q, k, k, lambda_, prefix_keys=torch.tensor([1, 2]), **options)
    starts = torch.tensor([0, 2, queries]), torch.tensor([0, 3, 7])
    yield lambda: isentrope.gpu.varlen_attention(q[0].transpose(0, 1), k[0].transpose(0, 1), k[0].transpose(0, 1), *starts)
    yield lambda: isentrope.row_lengths(q, k, **masks)


def test_nothing_is_read_back_from_the_device(grids):
    """There is neither a wait nor a copy, as CUDA graphs require."""
    for call in everything():
        call()  # copies a rule's table, once
        with Dispatched(waits_for_nothing):
            result = call()
            results = pytree.tree_leaves(result)
            if any(x.requires_grad for x in results):
                sum(x.sum() for x in results if x.requires_grad).backward()
    # Each function but row_lengths launches rows, forward pass and repair, twice; its backward pass rows, terms, spans,
    # and each gradient with its repair; two have gradients of statistics, so the largest key, and of sinks.
    assert len(grids) == 3 * (3 + 3 + 7) + 2 + 2 * 2


def test_tables_that_a_captured_graph_reads_are_kept(monkeypatch):
    """Tables are kept, whatever number of rules follows."""

    def table(scale):
        call = SimpleNamespace(
            rule=f"constant(scale={scale})", q=torch.empty(1), dim=16, soft_cap=0.0, queries=4, keys=4, sequence_keys=0, query_offset=0,
            steps=prepared.Steps(),
        )
        return weakref.ref(operands.RuleTables(call).visible)

    others = table(1000)
    monkeypatch.setattr(prepared, "_is_captured", lambda device: True)
    captured = table(1001)
    monkeypatch.setattr(prepared, "_is_captured", lambda device: False)
    for scale in range(100):  # three tables each
        table(scale + 1)
    assert others() is None and captured() is not None


def test_a_decode_step_reads_nothing_back():
    """decode() reads page tables on the CPU, so the fake tensors must be a GPU's."""
    with FakeTensorMode():
        cache, table = gpu(9, 2, 16, 16), gpu(3, 3, dtype=torch.int32)
        used = gpu(3, dtype=torch.int32)
        output, statistics = isentrope.decode(gpu(3, 4, 1, 16), cache, cache, table, used, return_stats=True)
    assert output.shape == (3, 4, 1, 16) and statistics.entropy.device.type == "cuda"


def test_grids_stay_within_the_limits_of_devices(grids):
    """All grid axes but the first end at 65535, which sequences times heads may exceed."""
    q = torch.empty(1, 1, 3, 16).expand(40000, 2, 3, 16).requires_grad_()
    isentrope.gpu.attention(q, q, q, return_stats=True)[0].sum().backward()
    assert len(grids) == 7
    for grid in grids:
        assert grid[0] < 1 << 31 and all(extent < 1 << 16 for extent in grid[1:])


@pytest.mark.parametrize("name", ["attention", "attention_rows", "varlen_attention", "decode", "row_lengths"])
def test_it_compiles_in_one_graph(name):
    def call(q, packed, lambda_, cache, table, used, starts):
        if name == "decode":
            return isentrope.decode(q, cache, cache, table, used, return_stats=True)[1].entropy
        if name == "varlen_attention":
            return isentrope.varlen_attention(packed, packed, packed, starts, starts)
        if name == "row_lengths":
            return isentrope.row_lengths(q, q, causal=True)
        if name == "attention_rows":
            return isentrope.attention_rows(q, q, q, lambda_)
        return isentrope.attention(q, q, q, rule="log_length", causal=True, return_stats=True)[1].collision

    graphs = []

    def backend(graph, _):
        graphs.append([str(node.target).removesuffix(".default") for node in graph.graph.nodes])
        return graph

    with FakeTensorMode():
        floats = [gpu(*shape) for shape in ((3, 4, 8, 16), (8, 4, 16), (3, 4, 8), (9, 4, 16, 16))]
        integers = [gpu(*shape, dtype=torch.int32) for shape in ((3, 3), (3,), (2,))]
        result = torch.compile(call, fullgraph=True, backend=backend)(*floats, *integers)
    assert result.device.type == "cuda"
    operator = {"varlen_attention": "attention", "attention_rows": "attention"}.get(name, name)
    assert len(graphs) == 1 and f"isentrope.{operator}" in graphs[0]


def test_samples_of_a_batch_are_mapped():
    q = torch.randn(3, 1, 2, 5, 16)
    mapped = torch.func.vmap(lambda q: isentrope.gpu.attention(q, q, q, causal=True))(q)
    torch.testing.assert_close(mapped, torch.stack([isentrope.gpu.attention(x, x, x, causal=True) for x in q]))


def test_offsets_beyond_32_bits():
    """The third row is beyond 2^31 numbers. Untouched memory takes no space."""
    step = (1 << 30) + 16
    far, plain = torch.empty(2 * step + 256, dtype=torch.float16), torch.randn(4, 3, 16).half()
    tensors = [far.as_strided((1, 1, 3, 16), (0, 0, step, 1), 16 * i) for i in range(4)]
    for tensor, values in zip(tensors, plain):
        tensor.copy_(values)
    mask = torch.empty(2 * step + 8, dtype=torch.bool).as_strided((1, 1, 3, 3), (0, 0, step, 1))
    mask.copy_(torch.ones(3, 3).tril().bool())
    results = []
    for q, k, v, d_output in (tensors, plain[:, None, None]):
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        output = isentrope.gpu.attention(*leaves, attn_mask=mask if q is tensors[0] else mask.clone())
        results.append((output, *torch.autograd.grad(output, leaves, d_output)))
    assert all(map(torch.equal, *results))


def test_torchs_own_function_is_taken_on_gpus():
    with FakeTensorMode():
        q, double = gpu(2, 4, 8, 16, dtype=torch.bfloat16), gpu(2, 4, 8, 16, dtype=torch.float64)
        with isentrope.sdpa.activate("log_length"), Dispatched() as seen:
            output = F.scaled_dot_product_attention(q, q, q, is_causal=True)
            assert output.device == q.device and seen.names.count("attention") == 1 and "bmm" not in seen.names
            F.scaled_dot_product_attention(q, q, q, dropout_p=0.1)
            assert seen.names.count("attention") == 2 and "bmm" not in seen.names
            F.scaled_dot_product_attention(double, double, double)
        assert seen.names.count("attention") == 2 and "bmm" in seen.names, "what the operator does not take stays torch's own"
        with Dispatched() as seen:
            F.scaled_dot_product_attention(q, q, q)
        assert seen.names and "attention" not in seen.names, "removed, it is torch's own again"


@pytest.mark.parametrize("options", [
    {}, {"is_causal": True}, {"scale": 0.7}, {"enable_gqa": True}, {"attn_mask": torch.ones(9, 9).tril().bool()},
    {"attn_mask": torch.zeros(9, 9).masked_fill(torch.ones(9, 9).triu(1).bool(), -torch.inf)},
])  # fmt: skip
def test_torchs_own_function_computes_the_same(options):
    """The interpreter replaces a device; gradients are compared, too."""
    q, k, v = (torch.randn(2, heads, 9, 16, requires_grad=True) for heads in (4, *[2 if "enable_gqa" in options else 4] * 2))
    library = torch.library.Library("aten", "IMPL")

    def results():
        output = F.scaled_dot_product_attention(q, k, v, **options)
        return output, *torch.autograd.grad(output.square().sum(), (q, k, v))

    want = results()
    try:
        sdpa_gpu.replace(library, "standard", ("CPU",))
        got = results()
        assert "Differentiable" in type(got[0].grad_fn).__name__
    finally:
        library._destroy()
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
