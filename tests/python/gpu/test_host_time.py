"""Counts the Python calls of a call with a stand-in for the launch, and compares launches with those of Triton's dispatch."""

import gpu_host
import pytest
import torch
from triton.runtime.jit import JITFunction

from isentrope._core.call import call_of
from isentrope._core.library import LSE
from isentrope.gpu import dispatch, launch
from isentrope.statistics import ALL

# Calls of functions in Python and in C that a call makes: seen with Python 3.11, and a few more for other versions.
BARS = {
    ("forward", 1): 400, ("forward", 1024): 425, ("statistics", 1): 400, ("statistics", 1024): 425,
    ("backward", 1): 615, ("backward", 1024): 630,
}  # fmt: skip


@pytest.fixture(autouse=True)
def stand_in():
    with gpu_host.stand_in_launches():
        yield


@pytest.fixture
def launches(monkeypatch):
    """Each launch: the compiled kernel, its programs, and what it was passed, tensors by type and shape."""
    found = []

    def run(self, *passed):
        x, y, z, _, _, _, _, _, _, *arguments = passed
        shown = [(a.dtype, a.shape) if isinstance(a, torch.Tensor) else a for a in arguments]
        found.append((self, (x, y, z), shown))

    monkeypatch.setattr(gpu_host._Compiled, "run", run)
    return found


@pytest.fixture
def by_triton(monkeypatch):
    """Kernels that Triton's own dispatch launched, by name."""
    found, run = [], JITFunction.run

    def counted(self, *arguments, **options):
        found.append(self.__name__)
        return run(self, *arguments, **options)

    monkeypatch.setattr(JITFunction, "run", counted)
    return found


@pytest.mark.parametrize(("kind", "keys"), BARS)
def test_python_calls_of_a_call(kind, keys):
    assert gpu_host.python_calls(gpu_host.step_of(kind, keys)) <= BARS[kind, keys]


@pytest.mark.parametrize("kind", ["forward", "statistics", "backward"])
def test_a_call_is_dispatched_by_triton_once(kind, launches, by_triton):
    step = gpu_host.step_of(kind, 1024)
    step()
    first, compiled = launches.copy(), len(by_triton)
    launches.clear()
    step()
    assert launches == first and len(by_triton) == compiled == len(first)


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
    direct = launches[len(launches) // 2 :]
    launches.clear()
    monkeypatch.setattr(dispatch, "_COMPILED", {})
    for call in calls:
        monkeypatch.setattr(dispatch, "_COMPILED", {})
        launch.attention(*call, wanted)
    assert len({id(one[0]) for one in launches}) > 20
    assert direct == launches


def test_steps_of_decoding_find_their_kernels(by_triton):
    """The number of keys is no part of the key, but whether 16 divides it."""
    step = gpu_host.decode_step()
    for keys in range(64, 300):
        step(keys)
    before = len(by_triton)
    for keys in range(300, 512):
        step(keys)
    assert before < 12 and len(by_triton) == before
