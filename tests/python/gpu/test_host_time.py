"""Counts the Python calls of a call with a stand-in for the launch. Compares launches of prepared and planned calls
with each other and with those of Triton's dispatch."""

from contextlib import nullcontext

import pytest
import torch
from dispatched import Dispatched
from triton import knobs
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from bench.gpu import host
from isentrope._core.call import call_of
from isentrope._core.library import BITS, LSE
from isentrope.gpu import dispatch, launch, operators, plan, prepared
from isentrope.gpu.tile_table import Tiles
from isentrope.statistics import ALL

# Calls of functions in Python and in C that a call makes, prepared and planned: seen with Python 3.11, and a few more for other versions.
BARS = {
    ("plain", 1): (43, 385), ("plain", 1024): (45, 430), ("plain backward", 1): (62, 570), ("plain backward", 1024): (64, 585),
    ("plain statistics", 1): (44, 380), ("plain statistics", 1024): (46, 430), ("forward", 1): (54, 390), ("forward", 1024): (56, 440),
    ("statistics", 1): (54, 385), ("statistics", 1024): (56, 435), ("backward", 1): (81, 580), ("backward", 1024): (83, 595),
}  # fmt: skip


@pytest.fixture(autouse=True)
def stand_in():
    with host.stand_in_launches():
        yield


@pytest.fixture
def launches(monkeypatch):
    """Each launch: the compiled kernel, its programs, and what it was passed, tensors by type and shape."""
    recorded = []

    def run(self, *passed):
        x, y, z, _, _, _, _, _, _, *arguments = passed
        shown = [(a.dtype, a.shape) if isinstance(a, torch.Tensor) else a for a in arguments]
        recorded.append((self, (x, y, z), shown))

    monkeypatch.setattr(host._Compiled, "run", run)
    return recorded


@pytest.fixture
def by_triton(monkeypatch):
    """Kernels that Triton's own dispatch launched, by name."""
    recorded, run = [], JITFunction.run

    def counted(self, *arguments, **options):
        recorded.append(self.__name__)
        return run(self, *arguments, **options)

    monkeypatch.setattr(JITFunction, "run", counted)
    return recorded


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize(("kind", "keys"), BARS)
def test_python_calls_of_a_call(kind, keys, anew):
    with host.planned_anew() if anew else nullcontext():
        counts = host.python_calls(host.step_of(kind, keys))
    assert counts <= BARS[kind, keys][anew], counts


# The same of the public functions, which torch's dispatcher and autograd take to the operator.
PUBLIC_BARS = {"forward": 57, "statistics": 68, "forward and backward": 212}


@pytest.fixture
def on_the_cpu(monkeypatch):
    """The kernels of this package are those of the CPU."""
    monkeypatch.setattr(operators, "_LIBRARIES", [])
    operators.register("CPU")
    yield
    operators._LIBRARIES[0]._destroy()


@pytest.mark.parametrize("keys", host.PUBLIC_KEYS)
@pytest.mark.parametrize("name", PUBLIC_BARS)
def test_python_calls_of_a_public_function(name, keys, on_the_cpu):
    with torch.set_grad_enabled("backward" in name):
        counts = host.python_calls(host.public_steps(keys)[name])
    assert counts <= PUBLIC_BARS[name], counts


@pytest.mark.parametrize("kind", ["plain", "plain statistics", "statistics", "plain backward", "backward"])
def test_operations_of_torch_in_a_prepared_call(kind):
    """Statistics are views of one tensor, made by one operation. Kernels write everything, and memory needs no dispatcher.

    Indexing a tensor is an operation, and no call of a function."""
    step = host.step_of(kind, 1024)
    for _ in range(2):
        step()
    with Dispatched() as counting:
        step()
    assert counting.functions == [torch.ops.aten.unbind.int] * (kind == "plain statistics")


@pytest.mark.parametrize("kind", ["forward", "statistics", "backward"])
def test_a_call_is_dispatched_by_triton_once(kind, launches, by_triton):
    step = host.step_of(kind, 1024)
    step()
    first, compiled = launches.copy(), len(by_triton)
    launches.clear()
    step()
    assert launches == first and len(by_triton) == compiled == len(first)
    step()
    assert len(launches) == 2 * len(first) and len(by_triton) == compiled


@pytest.mark.parametrize("anew", [False, True])
def test_hooks_are_passed_on_if_there_are_any(anew, monkeypatch):
    """Profilers add hooks in a running process, and remove them."""
    seen, step, runtime = [], host.step_of("forward", 1), knobs.runtime
    monkeypatch.setattr(host._Compiled, "run", lambda self, *passed: seen.append(passed[6:9]))
    with host.planned_anew() if anew else nullcontext():
        for _ in range(3):
            seen.clear()  # Triton's own dispatch makes the first launches.
            step()
        assert set(seen) == {(None, None, None)}
        for chain in (runtime.launch_enter_hook, runtime.launch_exit_hook):
            seen.clear()
            chain.add(print)
            step()
            chain.remove(print)
            assert [one[1:] for one in seen] == [(runtime.launch_enter_hook, runtime.launch_exit_hook)] * 2
            assert [one[0]["grid"][1:] for one in seen] == [(1, 1)] * 2
        seen.clear()
        step()
        assert set(seen) == {(None, None, None)}


def test_what_triton_compiles_for_of_a_number():
    """Alike: 0, 16 and 32, which 16 divides; 2 and 17. Others: 1, those beyond 32 bits, floats."""
    alike = [(0, 16, 32), (2, 17, -1), (1,), (1 << 31, 1 << 40), ((1 << 31) + 1, -(1 << 31) - 1), (0.5, 1.5)]
    kinds = [{dispatch._specialization(None, (x,)) for x in numbers} for numbers in alike]
    assert [len(kind) for kind in kinds] == [1] * len(alike) and len(set.union(*kinds)) == len(alike)


def tensors(queries, keys, dim, dtype, offset):
    """q, k and v whose storage begins so many elements behind an address that 16 divides."""
    for rows in (queries, keys, keys):
        yield torch.zeros(8 * rows * dim + offset, dtype=dtype)[offset:].view(1, 8, rows, dim)


@pytest.mark.parametrize("wanted", [LSE, ALL])
def test_the_kernel_is_the_one_that_triton_would_take(wanted, launches, monkeypatch):
    """For sizes, types, alignments and masks that Triton compiles differently, in an order that mixes them."""
    calls = [
        call_of(*tensors(queries, keys, dim, dtype, offset), causal=causal, window_size=window, soft_cap=cap)
        for queries, keys in ((1, 1), (1, 17), (1, 32), (40, 4096)) for dim in (64, 40) for dtype in (torch.bfloat16, torch.float16)
        for offset in (0, 1) for causal, window, cap in ((False, (-1, -1), 0.0), (True, (5, 0), 2.0), (True, (1 << 40, 0), 0.0))
    ]  # fmt: skip
    for _ in range(2):
        for call in calls:
            launch.attention(*call, wanted)
        prepared.forget()
    direct = launches[len(launches) // 2 :]
    launches.clear()
    monkeypatch.setattr(dispatch, "_COMPILED", {})
    for call in calls:
        monkeypatch.setattr(dispatch, "_COMPILED", {})
        prepared.forget()
        launch.attention(*call, wanted)
    assert len({id(one[0]) for one in launches}) > 20
    assert direct == launches


def test_steps_of_decoding_find_their_kernels(by_triton):
    """The number of keys is no part of the key, but whether 16 divides it."""
    step = host.decode_step()
    for keys in range(64, 300):
        step(keys)
    before = len(by_triton)
    for keys in range(300, 512):
        step(keys)
    assert before < 12 and len(by_triton) == before


def rows(*shape, dtype=torch.bfloat16):
    return torch.zeros(shape, dtype=dtype)


def masked(queries, keys, **others):
    """Options with every kind of tensor that a call may have."""
    return {
        "attn_mask": torch.ones(queries, keys, dtype=torch.bool), "bias": torch.zeros(2, 4, queries, keys), "sinks": torch.zeros(4),
        "key_end": torch.tensor([keys, 5]), "dropout_p": 0.1, "dropout_seed": torch.tensor(7), "rule": "log_length", **others,
    }  # fmt: skip


def documents():
    starts = torch.tensor([0, 5, 40])
    return {"cu_seqlens_q": starts, "cu_seqlens_k": starts}


def backward_of(call, wanted, upstream, *wants):
    q, v = call.q, call.v
    output = q.new_zeros((*q.shape[:3], v.shape[3]))
    statistics = torch.zeros((wanted & (BITS["support"] - 1)).bit_count(), *q.shape[:3])
    d_statistics = statistics.clone() if "statistics" in upstream else None
    return (*call, wanted, output, statistics, output.clone() if "output" in upstream else None, d_statistics, *wants, False)


PAGES = torch.zeros(2, 300, dtype=torch.int32), torch.tensor([3000, 17], dtype=torch.int32)
SQUARE = rows(2, 4, 40, 64), rows(2, 2, 40, 64), rows(2, 2, 40, 64)
HALF = [x.half() for x in SQUARE]
LONG = rows(2, 4, 1, 64), rows(2, 2, 4096, 64), rows(2, 2, 4096, 64)
CALLS = {  # functions and arguments of calls that together pass everything that a launch may be passed
    "lse": ("attention", (*call_of(*SQUARE), LSE)),
    "all statistics": ("attention", (*call_of(*SQUARE, causal=True), ALL)),
    "everything": ("attention", (*call_of(*SQUARE, **masked(40, 40)), ALL)),
    "rows of lambda": ("attention", (*call_of(*SQUARE, lambda_=torch.ones(2, 4, 40)), ALL)),
    "documents": ("attention", (*call_of(*SQUARE, **documents(), causal=True), ALL)),
    "shares": ("attention", (*call_of(*LONG), ALL)),
    "a padded dimension": ("attention", (*call_of(*(x[..., :40] for x in SQUARE)), LSE)),
    "heads inside rows": ("attention", (*call_of(*(x.transpose(1, 2).contiguous().transpose(1, 2) for x in SQUARE)), LSE)),
    "pages": ("decode", (*call_of(LONG[0], *[rows(600, 2, 16, 64)] * 2, causal=True), *PAGES, None, ALL)),
    "lengths": ("row_lengths", tuple(call_of(*SQUARE, key_end=torch.tensor([7, 9])))),
    "plain": ("attention_plain", (*SQUARE, "standard", 1, 0)),
    "plain, with statistics": ("attention_plain", (*SQUARE, "log_length", 0, BITS["entropy"] | BITS["support"])),
    "plain backward": ("attention_backward_plain", (*SQUARE, "standard", 2, SQUARE[0].clone(), torch.zeros(2, 4, 40), SQUARE[0].clone())),
    "backward": ("attention_backward", backward_of(call_of(*SQUARE, causal=True), LSE, ["output"], False, False, False)),
    "backward of statistics": ("attention_backward", backward_of(call_of(*SQUARE), ALL, ["statistics"], False, False, False)),
    "backward of everything": ("attention_backward", backward_of(call_of(*SQUARE, **masked(40, 40)), ALL, ["output", "statistics"], True, False, True)),
    "backward of lambda": ("attention_backward", backward_of(call_of(*SQUARE, lambda_=torch.ones(2, 4, 40)), LSE, ["output"], False, True, False)),
    "backward in float16": ("attention_backward", backward_of(call_of(*HALF, **masked(40, 40)), LSE, ["output"], True, False, True)),
}  # fmt: skip


def base_of(x):
    return x.base if isinstance(x, TensorDescriptor) else x


def compare(planned, prepared, moved):
    """Compares an argument of both calls. Notes in `moved`, by its storage, how far an allocation was moved."""
    assert isinstance(planned, TensorDescriptor) == isinstance(prepared, TensorDescriptor)
    if isinstance(planned, TensorDescriptor):
        assert (planned.shape, planned.strides, planned.block_shape) == (prepared.shape, prepared.strides, prepared.block_shape)
        assert base_of(planned).data_ptr() == base_of(prepared).data_ptr() and base_of(planned).dtype == base_of(prepared).dtype
    elif isinstance(planned, torch.Tensor):
        storage, address = planned.untyped_storage(), planned.data_ptr()
        assert type(prepared) is int and prepared % 16 == address % 16
        assert moved.setdefault(storage.data_ptr(), (storage, prepared - address))[1] == prepared - address
    else:
        assert type(planned) is type(prepared) and planned == prepared


@pytest.mark.parametrize("described", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_a_prepared_call_passes_what_a_planned_one_passes(name, described, monkeypatch):
    """Kernels, grids, numbers and addresses. Allocations are as far apart as they were large, and results are those returned."""
    found, tiles = [], plan.tiles
    monkeypatch.setattr(plan, "tiles", lambda *x, **y: Tiles(*tiles(*x, **y))._replace(descriptors=described))
    monkeypatch.setattr(host._Compiled, "run", lambda self, *passed: found.append((self, passed[:3], passed[9:])))
    function, arguments = CALLS[name]
    results = []
    for _ in range(3):
        last, found[:] = found.copy(), []
        made = getattr(launch, function)(*arguments)
        results.append((made,) if isinstance(made, torch.Tensor) else made)
    assert len(last) == len(found) >= 1 and type(found[0][2][0]) is int
    moved = {}
    for one, other in zip(last, found):
        assert one[:2] == other[:2] and len(one[2]) == len(other[2])
        for a, b in zip(one[2], other[2]):
            compare(a, b, moved)
    own = {x.untyped_storage().data_ptr() for x in arguments if isinstance(x, torch.Tensor)}
    for x, y in zip(results[1], results[2]):
        assert (x.shape, x.stride(), x.dtype) == (y.shape, y.stride(), y.dtype)
        if x.data_ptr() in moved:
            assert moved[x.data_ptr()][1] == y.data_ptr() - x.data_ptr()
    # Nothing overlaps: neither tensors of the call, nor results, nor parts of the workspace.
    ranges = sorted((start + by, start + by + storage.nbytes()) for start, (storage, by) in moved.items() if start)
    assert all(end <= begin for (_, end), (begin, _) in zip(ranges, ranges[1:]))
    assert all(moved[start][1] == 0 for start in own & moved.keys())
