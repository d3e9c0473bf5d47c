"""Prepared calls compute what planned ones do. Kernels are interpreted behind a stand-in for compiled ones, which takes addresses."""

import ctypes
import gc
from types import SimpleNamespace

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves
from triton.runtime import driver
from triton.runtime.interpreter import InterpretedFunction

import isentrope
from isentrope._core.library import OPS
from isentrope.gpu import ahead, dispatch, plan, prepared, tile_table
from isentrope.gpu.problems import Problem
from isentrope.gpu.tile_table import Key, Tiles
from src.gpu.compiling import TARGETS

TARGET = TARGETS["sm_90"].gpu
_interpret = InterpretedFunction.run


def at(address, dtype):
    """A tensor at an address, for kernels that compute further addresses themselves."""
    if address == 0:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer((ctypes.c_byte * 16).from_address(address), dtype=dtype)


class Interpreted:
    """A kernel compiled for a chip, except that it is interpreted."""

    function, packed_metadata = 0, ()
    metadata = SimpleNamespace(target=TARGET)

    def __init__(self, kernel, arguments, constants, launched):
        self.kernel, self.constants, self.launched = kernel, constants, launched
        self.types = [x.dtype if isinstance(x, torch.Tensor) else None for x in arguments]

    def run(self, x, y, z, stream, function, packed, metadata, enter, leave, *passed):
        arguments = passed[: len(self.types)]
        of_prepared = type(arguments[0]) is int
        self.launched.append((self.kernel.__name__, "prepared" if of_prepared else "planned"))
        arguments = [at(a, kind) if of_prepared and kind else a for a, kind in zip(arguments, self.types)]
        _interpret(self.kernel, *arguments, grid=(x, y, z), warmup=False, **self.constants)


@pytest.fixture(autouse=True)
def launched(monkeypatch):
    """Kernels that were launched, and whether by a prepared call. Fresh memory is full of NaN and -1."""
    found = []

    def run(self, *arguments, grid, warmup, **constants):
        found.append((self.__name__, "compiled"))
        _interpret(self, *arguments, grid=grid, warmup=warmup, **constants)
        return Interpreted(self, arguments, constants, found)

    monkeypatch.setattr(InterpretedFunction, "run", run)
    monkeypatch.setattr(dispatch, "_COMPILED", {})
    monkeypatch.setattr(driver, "_active", ahead._Driver(TARGET))
    fill = lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype)  # noqa: E731
    monkeypatch.setattr(torch._C._dynamo.guards, "_empty_strided_cpu", fill)
    prepared.forget()
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield found
    torch.use_deterministic_algorithms(False)
    prepared.forget()


def kinds(launched):
    """How the launches were made, which it forgets."""
    found = {kind for _, kind in launched}
    launched.clear()
    return found


@pytest.fixture
def results(monkeypatch):
    """All results of problems, by name."""
    found = {}
    monkeypatch.setattr(Problem, "_put", lambda self, name, values: found.update({name: values.detach().clone()}) or _put(self, name, values))
    return found


_put = Problem._put
LINES = [  # everything that is given to a kernel, and every function of torch between launches
    "shape=1x2x20x33x16",
    "dt=bf16 shape=1x2:1x17x20x16:8 mask=causal:bottom_right,window=9:-1 cap=3 rule=log_length bwd=1",
    "dt=f16 shape=1x2:1x17x20x16 mask=causal:top_left admitted=1 bias=1 sink=1 bwd=1",
    "dt=f16 shape=1x1x19x40x16 mask=causal:bottom_right special=1 bwd=1",
    "shape=1x2x20x20x16 lambda=1 bwd=1",
    "shape=2x1x17x31x16 mask=left_padding,right_padding bias=1 special=1 bwd=1",
    "shape=1x2x20x20x16 mask=documents=3 rule=ssmax(s=[1,2]) bwd=1",
    "shape=1x1x20x40x16 admitted=1 rule=log_length dropout=0.25 bwd=1",
    "dt=bf16 shape=1x2x40x70x16 mask=causal:bottom_right,dilation=7 rule=attn_temperature_tuning sink=1",
    "shape=1x2:1x1x300x16 sink=1 scale=10",
    "dt=bf16 shape=2x2:1x3x70x16 pages=7",
    "dt=bf16 shape=1x4:1x1x200x16 pages=16 special=1",
]


@pytest.mark.parametrize("line", [pytest.param(line, marks=pytest.mark.long if i % 2 else ()) for i, line in enumerate(LINES)])
def test_other_numbers_of_the_same_signature(line, launched, results):
    for _ in range(2):
        Problem.of_line(f"{line} seed=1").run()
        assert "prepared" not in kinds(launched)
    other = Problem.of_line(f"{line} seed=2")
    other.run()
    assert kinds(launched) == {"prepared"} and other.verdict()["outcome"] == "PASSED"
    once = dict(results)
    prepared.forget()
    other.run()
    assert "prepared" not in kinds(launched) and once.keys() == results.keys()
    assert all(torch.equal(x.nan_to_num(7.0), once[name].nan_to_num(7.0)) for name, x in results.items())


def tensors(count=3, rows=20, dtype=torch.float32, offset=0):
    return [torch.randn(2 * rows * 16 + offset).to(dtype)[offset:].view(1, 2, rows, 16) for _ in range(count)]


def test_one_tensor_is_several_arguments(launched):
    """The first call computes with one tensor three times, the second with three, and the other way round."""
    for first, second in ((tensors(1) * 3, tensors()), (tensors(), tensors(1) * 3)):
        prepared.forget()
        for _ in range(2):
            isentrope.attention(*first)
        launched.clear()
        output = isentrope.attention(*second, causal=False)
        assert kinds(launched) == {"prepared"}
        prepared.forget()
        assert torch.equal(output, isentrope.attention(*second))


@pytest.mark.parametrize("return_stats", [False, True, ("support", "collision")])
def test_plain_calls_compute_what_general_ones_do(launched, return_stats):
    """A soft-cap of 0 takes the general operator."""
    q, k, v = tensors()

    def call(**options):
        launched.clear()
        both = []
        for recorded in (True, False):
            with torch.set_grad_enabled(recorded):
                both.append(isentrope.attention(q, k, v, causal=recorded, rule="log_length", return_stats=return_stats, **options))
        return [x for x in tree_leaves(both) if x is not None]

    assert len(same_results(call, launched, soft_cap=0.0)) == {False: 2, True: 20}.get(return_stats, 6)


def same_results(call, launched, **other):
    """Returns the results of calls, of which the third is prepared, and of one with other options; they are the same."""
    found = [call(), call(), call()]
    assert kinds(launched) == {"prepared"}
    found.append(call(**other))
    assert all(torch.equal(a, b) for one in found[:3] for a, b in zip(one, found[3], strict=True))
    return found[3]


@pytest.mark.parametrize("statistics, other", [(False, {"soft_cap": 0.0}), ("entropy", {})], ids=["plain", "of statistics alone"])
def test_gradients_are_those_of_general_calls(launched, statistics, other):
    """Without a gradient of the output, a zero stands in."""

    def call(**options):
        torch.manual_seed(3)
        leaves = [x.requires_grad_() for x in tensors()]
        results = isentrope.attention(*leaves, causal=True, rule="log_length", return_stats=statistics, **options)
        launched.clear()
        return torch.autograd.grad(results[1].entropy.sum() if statistics else results.square().sum(), leaves)

    assert same_results(call, launched, **other)[0].abs().max() > 0


def test_layers_of_a_decode_step_share_its_plan(launched):
    """Two calls of each step are planned, with a contiguous cache that grows by a key."""
    for keys in range(30, 34):
        layers = [(*tensors(1, rows=1), *tensors(2, rows=keys)) for _ in range(4)]
        found, made = [], []
        for layer in layers:
            found.append(isentrope.attention(*layer, causal=True, rule="log_length", return_stats=True))
            made.append("prepared" in kinds(launched))
        assert made == [False, False, True, True]
        for layer, results in zip(layers, found):
            prepared.forget()
            fresh = isentrope.attention(*layer, causal=True, rule="log_length", return_stats=True)
            assert all(torch.equal(a, b) for a, b in zip(tree_leaves(results), tree_leaves(fresh), strict=True))
        launched.clear()


def test_calls_without_rows_and_lengths(launched):
    q, k = tensors(2)
    for _ in range(3):
        launched.clear()
        lengths = isentrope.row_lengths(q, k, causal=True, key_end=torch.tensor([9]))
    assert kinds(launched) == {"prepared"} and lengths[0, 0].tolist() == [min(i, 9) for i in range(1, 21)]
    for _ in range(2):
        assert isentrope.attention(q[:, :, :0], k, k).shape == (1, 2, 0, 16)
    assert not launched


def test_what_is_not_prepared(launched):
    """Lists with gaps are copied, and scales in tensors are read, in each call."""
    q, k, v = tensors()
    key_end = torch.tensor([[5, 0]])[:, 0].expand(1)
    gaps = torch.tensor([5, 0, 9, 0])[::2]
    two = [x.expand(2, 2, 20, 16) for x in (q, k, v)]
    for _ in range(3):
        launched.clear()
        isentrope.attention(q, k, v, key_end=key_end)
    assert kinds(launched) == {"prepared"}
    for _ in range(4):
        launched.clear()
        isentrope.attention(*two, key_end=gaps)
    assert kinds(launched) == {"planned"}
    scale = torch.tensor(0.5, dtype=torch.float64)
    call = [q, k, v, scale, *[None] * 11, "standard", 0, -1, -1, 0, 0, 0, 0, 0, 0.0, 0.0, 1]
    for _ in range(3):
        halves = OPS.attention(*call)[1]
    scale.fill_(0.25)
    assert not torch.equal(OPS.attention(*call)[1], halves) and "prepared" not in kinds(launched)


def test_what_is_another_signature(launched):
    """Each call differs from the first in one respect."""
    q, k, v = tensors()
    for _ in range(2):
        isentrope.attention(q, k, v, causal=True)
    others = [
        (tensors(rows=21), {}), (tensors(dtype=torch.bfloat16), {}), (tensors(offset=1), {}), ((q, k.transpose(0, 1).transpose(1, 0), v), {}),
        ((q, k, torch.randn(1, 2, 16, 20).mT), {}), ((q, k, v), {"causal": False}), ((q, k, v), {"rule": "log_length"}),
        ((q, k, v), {"soft_cap": 2.0}), ((q, k, v), {"key_end": torch.tensor([20])}), ((q, k, v), {"return_stats": ("entropy",)}),
        ((q, k, v), {"window_size": (3, -1)}),
    ]  # fmt: skip
    same = []
    for arguments, options in others:
        launched.clear()
        isentrope.attention(*arguments, **{"causal": True, **options})
        same.append("prepared" in kinds(launched))
    # Only the transposition there and back leaves the signature as it was.
    assert same == [False] * 3 + [True] + [False] * 7


def test_other_tiles_are_planned_anew(launched):
    """In the tuner tiles change in a running process."""
    chip, key = plan.chip_of(torch.device("cpu")), Key("forward", "f32", 16, "lse")
    arguments = tensors(rows=70)
    for _ in range(3):
        want = isentrope.attention(*arguments)
    assert "prepared" in kinds(launched)
    with tile_table.trying(chip.kind, chip.card, key, Tiles(16, 16, 4, 1)):
        smaller = isentrope.attention(*arguments)
        assert ("forward_kernel", "compiled") in launched and "prepared" not in kinds(launched)
        for _ in range(2):
            launched.clear()
            isentrope.attention(*arguments)
        assert kinds(launched) == {"prepared"}
    assert torch.equal(isentrope.attention(*arguments), want) and "prepared" not in kinds(launched)
    torch.testing.assert_close(smaller, want)


def test_devices_have_plans_of_their_own():
    found = []

    def planned(steps, tensors, _):
        found.append(tensors[0].device.type)
        return tensors

    for device in ("cpu", "meta", "cpu"):
        prepared.run(planned, (torch.empty(3, device="cpu"), torch.empty(3, device=device)), ())
    assert found == ["cpu"] * 3 and prepared._entry.cache_info().currsize == 2


def test_no_tensor_of_a_call_is_kept(launched):
    for _ in range(2):
        arguments = [*tensors(), torch.tensor([11])]
        result = isentrope.attention(*arguments[:3], key_end=arguments[3], return_stats=True)[0]
    storages = [StorageWeakRef(x.untyped_storage()) for x in (*arguments, result)]
    del arguments, result
    gc.collect()
    assert all(x.expired() for x in storages)
    isentrope.attention(*tensors(), key_end=torch.tensor([11]), return_stats=True)
    assert "prepared" in kinds(launched)


def test_tables_of_captured_calls_are_kept(launched, monkeypatch):
    monkeypatch.setattr(prepared, "_CAPTURED", {})
    for _ in range(2):
        isentrope.attention(*tensors(), rule="log_length")
    assert not prepared._CAPTURED
    monkeypatch.setattr(prepared, "_is_captured", lambda device: True)
    isentrope.attention(*tensors(), rule="log_length")
    assert len(prepared._CAPTURED) == 3 and "prepared" in kinds(launched)


def test_old_signatures_are_forgotten():
    for count in range(prepared.LIMIT + 20):
        prepared._entry(len, 0, (count,))
    assert prepared._entry.cache_info().currsize == prepared.LIMIT
