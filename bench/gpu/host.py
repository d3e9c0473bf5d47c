#!/usr/bin/env python3
"""Host time of a call by part, without a device: microseconds of this machine's CPU, and calls of functions.

    bench/gpu/host.py [--json FILE] [--keys 1 128 1024]

Tensors lie on the CPU, the plan is that of an H100, and a launch ends in a stand-in that does nothing: the driver's part of a launch,
some microseconds each, is left out. Times are the least of many short runs, because a busy machine adds to the others. The peer,
torch's scaled_dot_product_attention, runs on the CPU with its arithmetic and without a launch.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "0"  # before Triton is imported

import torch
import torch.nn.functional as F
from triton.runtime import driver
from triton.runtime.jit import JITFunction

import isentrope
from isentrope._core.call import call_of
from isentrope._core.library import LSE, SUPPORT
from isentrope.gpu import ahead, dispatch, launch, operators, plan, prepared
from isentrope.gpu.operands import Operands
from isentrope.statistics import ALL

sys.path.append(str(Path(__file__).parents[2]))
from scripts.json_rows import write_rows
from src.gpu.compiling import TARGETS

HEADS, DIM = 8, 64
PUBLIC_KEYS = (1, 1024)


class _Compiled:
    """A compiled kernel whose launch does nothing."""

    function, packed_metadata = 0, ()
    metadata = SimpleNamespace(target=TARGETS["sm_90"].gpu)

    def launch_metadata(self, grid: tuple[int, int, int], *_: Any) -> Any:
        """Returns what hooks are called with."""
        return {"grid": grid}

    def run(self, *_: Any) -> None:
        """Stands in for the driver."""


@contextmanager
def stand_in_launches() -> Iterator[None]:
    """Launches in the block are planned and dispatched as on an H100, and end in a stand-in."""
    target = TARGETS["sm_90"]

    def compile_nothing(self: JITFunction, key: Any, *_: Any) -> _Compiled:
        return self.device_caches[0][0].setdefault(key, _Compiled())

    with (
        mock.patch.object(plan, "chip_of", lambda _: target.chip), mock.patch.object(dispatch, "_COMPILED", {}),
        mock.patch.object(driver, "_active", ahead._Driver(target.gpu)),
        mock.patch.object(JITFunction, "_do_compile", compile_nothing),
    ):  # fmt: skip
        prepared.forget()
        yield
    prepared.forget()


def step_of(kind: str, keys: int) -> Callable[[], Any]:
    """A call of the operator's implementation. keys: also queries.

    kind: "plain", "plain statistics" (all of them) and "plain backward" have q, k, v, a rule and a causal mask alone; "forward",
    "statistics" and "backward" are calls of the general operator."""
    wanted = ALL if kind == "statistics" else LSE
    q, k, v = (torch.zeros(1, HEADS, keys, DIM, dtype=torch.bfloat16) for _ in range(3))
    call = tuple(call_of(q, k, v, causal=True))
    statistics = torch.zeros((wanted & (SUPPORT - 1)).bit_count(), 1, HEADS, keys)
    lse = statistics[0]
    steps: dict[str, Callable[[], Any]] = {
        "plain": lambda: launch.attention_plain(q, k, v, "standard", 2, 0),
        "plain statistics": lambda: launch.attention_plain(q, k, v, "standard", 2, ALL),
        "plain backward": lambda: launch.attention_backward_plain(q, k, v, "standard", 2, q, lse, q),
        "backward": lambda: launch.attention_backward(*call, wanted, q, statistics, q, None, False, False, False, False),
    }
    return steps.get(kind, lambda: launch.attention(*call, wanted))


def decode_step() -> Callable[[int], Any]:
    """One step of decoding against so many keys of a contiguous cache. Each number of keys has a signature of its own."""
    q, cache = (torch.zeros(1, HEADS, length, DIM, dtype=torch.bfloat16) for length in (1, 4096))
    return lambda keys: launch.attention(*call_of(q, cache[:, :, :keys], cache[:, :, :keys]), LSE)


def python_calls(step: Callable[[], Any]) -> int:
    """Calls of functions, in Python and in C, that a call makes after the first few."""
    count = 0

    def profile(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    for _ in range(3):
        step()
    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        step()
    finally:
        sys.setprofile(before)
    return count - 1  # that of setprofile itself


def microseconds(step: Callable[[], Any], runs: int = 300, calls: int = 5) -> float:
    """Least time of a call in many short runs."""
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        for _ in range(calls):
            step()
        best = min(best, (time.perf_counter() - start) / calls)
    return round(1e6 * best, 1)


@contextmanager
def planned_anew() -> Iterator[None]:
    """Calls in the block are planned, as the first one of a signature."""
    with mock.patch.object(prepared, "_entry", lambda *_: prepared._Entry()):
        yield


def parts_of(kind: str, keys: int) -> dict[str, float]:
    """Microseconds of a prepared call: all of it, its signature with the views of statistics, its launches, and its memory and
    addresses, the rest. Then those of a call that is planned, with its checks and the dispatch of its launches."""
    step = step_of(kind, keys)
    whole = microseconds(step)
    with mock.patch.object(dispatch, "launch_compiled", lambda *_: None):
        without_launches = microseconds(step)
    results = None, torch.zeros(ALL.bit_count() - 1, 1, HEADS, keys), None
    prepared_call = SimpleNamespace(prepared=lambda *_: results)
    with mock.patch.object(prepared, "_entry", lambda *_: prepared_call):
        signature = microseconds(step)
    launched: list[tuple] = []
    with planned_anew():
        planned = microseconds(step)
        with mock.patch.object(dispatch, "launch", lambda *one: launched.append(one) or []):
            step()
    q = torch.zeros(1, HEADS, keys, DIM, dtype=torch.bfloat16)
    call = tuple(call_of(q, q, q, causal=True))
    return {
        "call": whole,
        "signature": signature,
        "memory and addresses": round(without_launches - signature, 1),
        "launches": round(whole - without_launches, 1),
        "number of launches": sum(len(one) - 3 for one in launched),
        "planned": planned,
        "its checks": microseconds(lambda: Operands(call)),
        "its dispatch": microseconds(lambda: [dispatch.launch(*one) for one in launched]),
    }


def steps_of_decoding(layers: int) -> float:
    """Microseconds of a layer's call in decoding with a contiguous cache that grows by a key each step. Layers have the same shapes,
    so that two of their calls are planned in each step."""
    step, best = decode_step(), float("inf")
    for first in range(256, 4096, 8):
        start = time.perf_counter()
        for keys in range(first, first + 8):
            for _ in range(layers):
                step(keys)
        best = min(best, (time.perf_counter() - start) / 8 / layers)
        prepared.forget()
    return round(1e6 * best, 1)


def public_steps(keys: int, function: Callable[..., Any] = isentrope.attention) -> dict[str, Callable[[], Any]]:
    """Calls through torch's dispatcher and autograd, by name; "statistics" for isentrope.attention alone.

    keys: also queries."""
    q, k, v = (torch.zeros(1, HEADS, keys, DIM, dtype=torch.bfloat16) for _ in range(3))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    call = partial(function, is_causal=True)
    return {
        "forward": lambda: call(q, k, v),
        "statistics": lambda: call(q, k, v, return_stats=True),
        "forward and backward": lambda: torch.autograd.grad(call(*leaves), leaves, q),
    }


def public_functions() -> dict[str, dict[str, Any]]:
    """Microseconds of isentrope.attention with each of PUBLIC_KEYS, and ratios to scaled_dot_product_attention with one
    key. Its arithmetic runs on the CPU, so that more keys would take it longer. The statistics' peer is the forward
    pass. Runs take turns, so that a busy machine slows all."""
    ours, torchs = [public_steps(keys) for keys in PUBLIC_KEYS], public_steps(1, F.scaled_dot_product_attention)
    torchs["statistics"] = torchs["forward"]
    medians = {}
    for name, peer in torchs.items():
        best = [float("inf")] * (1 + len(ours))
        with torch.set_grad_enabled("backward" in name):
            for _ in range(10):
                for index, step in enumerate([peer, *(steps[name] for steps in ours)]):
                    best[index] = min(best[index], microseconds(step, runs=50))
        medians[name] = {"peer": best[0], "us": best[1:], "ratios": [round(us / best[0], 2) for us in best[1:]]}
    return medians


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keys", type=int, nargs="+", default=[1, 128, 1024])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    operators.register("CPU")
    with stand_in_launches():
        public = public_functions()
        print(f"isentrope.attention, {PUBLIC_KEYS} keys, and scaled_dot_product_attention, 1 key, with its arithmetic:")
        for name, row in public.items():
            print(f"  {name}: {row['us']} us, {row['ratios']} times the {row['peer']} us of torch's")
        for kind in ("plain", "plain statistics", "forward", "statistics", "plain backward", "backward"):
            for keys in arguments.keys:
                step = step_of(kind, keys)
                row = {"kind": kind, "keys": keys, "python calls": python_calls(step), **parts_of(kind, keys)}
                print(", ".join(f"{name}: {value}" for name, value in row.items()), flush=True)
                rows.append(row)
        growing = {layers: steps_of_decoding(layers) for layers in (1, 32)}
        for layers, us in growing.items():
            print(f"a layer's call in decoding with a cache that grows, {layers} layers: {us}")
    if arguments.json:
        record = {"public functions": public, "rows": rows, "layer's call with a growing cache, by layers": growing}
        write_rows(arguments.json, record, 2)


if __name__ == "__main__":
    main()
