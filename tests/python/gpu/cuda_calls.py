"""Calls of isentrope_cuda from C++, C or JAX's handlers to a driver that records them, and those that Triton's launcher would make."""

import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from src.gpu.compiling import TARGETS, calls, launches

sys.path.append(str(Path(__file__).parents[3]))
from src.gpu import kernels
from src.gpu.lines import Line, contiguous

FORMATS = {"i32": "<i", "i64": "<q", "fp32": "<f"}
# Environment of CUDA_PROGRAM for a call in each language.
IN = {"C++": {}, "C": {"ISENTROPE_IN": "C"}, "JAX": {"ISENTROPE_IN": "JAX"}}


class Case(NamedTuple):
    """A call: statistics, and its problem line."""

    wanted: str
    line: str

    def __str__(self):
        return f"{self.wanted} {self.line}"

    @property
    def backward(self):
        return "bwd=1" in self.line

    @property
    def given(self):
        """Arguments that src/gpu/kernels.py compiles on request."""
        names = tuple(name for name, words in kernels.WITH.items() if words.partition(" ")[0] in self.line)
        return (*names, *re.findall("dilation=2", self.line))

    @property
    def languages(self):
        """JAX has no pages, codes or lists of positions on a device, and counts supports in another type."""
        others = ("documents", "padding", "pages", "cache", "lambda", "prefix", "dropout")
        counts = self.wanted == "all" and not self.backward
        return IN.keys() - {"JAX"} if counts or any(word in self.line for word in others) else IN

    def run(self):
        """Makes the call in Python. Returns the addresses of arguments and results, by their names in C++."""
        line = Line(self.line, "lse" if self.wanted == "none" else self.wanted, contiguous)
        results = line.backward(upstream=self.wanted != "none") if self.backward else {"output": line.forward()[0]}
        return {name: x.data_ptr() for name, x in {**line.tensors, **results}.items()}

    def launches(self, target):
        with launches(target) as recorded:
            self.run()
        return recorded


# Full, causal, window, packed, padded, few rows, split keys, paged cache; each set of statistics, type and dimension.
CASES = [
    Case("lse", "dt=bf16 shape=4x32:8x256x256x64"),
    Case("lse", "dt=bf16 shape=4x32:8x256x256x64 mask=causal:bottom_right"),
    Case("entropy", "dt=bf16 shape=4x32:8x256x256x64 mask=window=100:0 rule=log_length(length=total)*attn_temperature_tuning"),
    Case("entropy", "dt=bf16 shape=1x8x1024x1024x64 mask=causal:bottom_right rule=entropy_invariant(base=512)"),
    Case("all", "dt=f16 shape=1x8x300x300x128 mask=causal:bottom_right,documents=3 rule=ssmax(s=[1,2,3,4,5,6,7,8])"),
    Case("all", "dt=f16 shape=1x8x300x300x128"),
    Case("lse", "dt=f16 shape=2x4:1x128x1024x128 mask=right_padding rule=attn_temperature_tuning"),
    Case("all", "dt=bf16 shape=2x8:2x1x2000x64 mask=right_padding pages=16"),
    Case("entropy", "dt=bf16 shape=4x8:2x2x100x128 mask=causal:bottom_right"),
    Case("lse", "dt=bf16 shape=2x8:2x1x2048x64 mask=right_padding pages=64"),
    Case("all", "dt=bf16 shape=2x8:2x128x128x64 admitted=1 bias=1 sink=1 cap=30 rule=log_length"),
    Case("lse", "dt=bf16 shape=2x8:2x128x256x64 mask=causal:bottom_right lambda=1 dropout=0.1 dropout_seed=3"),
    Case("lse", "dt=bf16 shape=2x8:2x2x2048x64 mask=dilation=2 lambda=1 admitted=1"),
    Case("lse", "dt=bf16 shape=2x8:2x1x2048x64 mask=right_padding lambda=1 sink=1 pages=16"),
    Case("all", "dt=bf16 shape=2x8:2x128x256x64 mask=causal:bottom_right,left_padding,prefix=5"),
    Case("none", "dt=bf16 shape=1x8:2x256x256x64 bwd=1"),
    Case("lse", "dt=bf16 shape=2x8:2x256x256x128 mask=causal:bottom_right rule=attn_temperature_tuning bwd=1"),
    Case("all", "dt=bf16 shape=2x8:2x256x256x64 mask=documents=3 bwd=1"),
    Case("all", "dt=bf16 shape=2x8:2x128x128x64 admitted=1 bias=1 sink=1 cap=30 dropout=0.1 dropout_seed=3 bwd=1"),
    Case("lse", "dt=f16 shape=2x8:2x128x128x128 mask=causal:bottom_right admitted=1 bwd=1"),
    Case("entropy", "dt=f16 shape=2x8:2x128x128x64 bias=1 sink=1 bwd=1"),
    Case("entropy", "dt=bf16 shape=2x8:2x128x128x64 mask=causal:bottom_right,dilation=2 lambda=1 bwd=1"),
]


def with_units(chip):
    """Environment that sets the number of multiprocessors of the emulated device."""
    return TARGETS[chip]._replace(chip=TARGETS[chip].chip._replace(units=132))


def called(folder, wanted, line, tmp_path, **environment):
    """Returns the program's output, its errors, and the driver's recorded calls."""
    log = tmp_path / "calls"
    log.unlink(missing_ok=True)
    environment = {"LD_LIBRARY_PATH": os.environ["CUDA_DRIVER"], "ISENTROPE_CUDA_CALLS": str(log), **environment}
    done = subprocess.run(
        [os.environ["CUDA_PROGRAM"], folder, wanted, line], env=os.environ | environment, capture_output=True, text=True
    )
    return done, [json.loads(x) for x in log.read_text().splitlines()] if log.exists() else []


class Passed(NamedTuple):
    """A parameter: an address, or the bytes of a number."""

    name: str
    address: int | None
    number: str = ""


def expected(case, target):
    """Returns the launches of Triton's launcher: kernels, programs, parameters; and addresses by name."""

    def passed(name, kind, value):
        if kind.startswith("*"):
            return Passed(name, value.data_ptr())
        return Passed(name, None, struct.pack(FORMATS[kind], value).hex())

    with calls(target) as recorded:
        named = case.run()
    made = [
        (
            call.launch, [*call.grid, 1, 1][:3],
            [passed(name, kind, call.values[name]) for name, kind in call.launch.signature if kind != "constexpr"],
        )
        for call in recorded
    ]  # fmt: skip
    return made, named


def recorded_parameters(one, wanted):
    """Returns the recorded parameters; `wanted` says which are addresses."""
    *passed, global_scratch, profile_scratch = one["parameters"]
    assert (int(global_scratch, 16), int(profile_scratch, 16)) == (0, 0)
    assert len(passed) == len(wanted), one["symbol"]
    return [
        Passed(w.name, None, x) if w.address is None else Passed(w.name, int.from_bytes(bytes.fromhex(x), "little"))
        for x, w in zip(passed, wanted)
    ]


def renamed(launches, named, left_out=frozenset()):
    """Replaces addresses by names, or by the order of their first use."""
    names = {0: "nothing"} | {address: name for name, address in named.items()}

    def place(address):
        return names.setdefault(address, len(names))

    return [[(x.name, x.number if x.address is None else place(x.address)) for x in one if x.name not in left_out] for one in launches]


def compare(case, folder, chip, tmp_path, **environment):
    """Compares the driver's calls with those of Triton's launcher. Returns them, the launches among them with those of
    Triton's, and addresses by name."""
    done, recorded = called(folder, case.wanted, case.line, tmp_path, **environment)
    assert done.returncode == 0, done.stderr
    named = json.loads(done.stdout)
    stream = named.pop("stream")
    made = [one for one in recorded if one["call"] == "launch"]
    wanted, wanted_named = expected(case, with_units(chip))
    assert [(one["symbol"].partition("$")[0], one["grid"]) for one in made] == [(one.kernel.__name__, grid) for one, grid, _ in wanted]
    parameters = [x for _, _, x in wanted]
    addresses = {name: named[name] for name in wanted_named}
    left_out = {"bounds"} if "dt=f16" not in case.line else set()  # in other types bounds are a placeholder
    if environment == IN["JAX"]:  # whose layout is another
        left_out |= {x.name for one in parameters for x in one if x.name.startswith("stride_")}
    assert renamed(map(recorded_parameters, made, parameters), addresses, left_out) == renamed(parameters, wanted_named, left_out)
    assert all(one["stream"] == stream and not one["extra"] for one in made)
    return recorded, [(one, kernel) for one, (kernel, *_) in zip(made, wanted)], named
