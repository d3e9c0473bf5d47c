"""Calls of isentrope_cuda from C++, C or JAX's handlers to a driver that records them, and those that Triton's launcher would make."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import torch

from isentrope._core.call import call_of
from isentrope._core.library import LSE
from isentrope.gpu import launch
from isentrope.gpu.launch_forward import forward
from isentrope.gpu.operands import Operands
from src.gpu.compiling import TARGETS, calls, launches

sys.path.append(str(Path(__file__).parents[3]))
from src.gpu import kernels

FORMATS = {"i32": "<i", "i64": "<q", "fp32": "<f"}
# Environment of CUDA_PROGRAM for a call in each language.
IN = {"C++": {}, "C": {"ISENTROPE_IN": "C"}, "JAX": {"ISENTROPE_IN": "JAX"}}


class Case(NamedTuple):
    """A call, as a line for C++ and as tensors for Python. backward: its gradients."""

    wanted: str
    shape: tuple[int, ...]
    type: str = "bf16"
    causal: bool = False
    window: int = -1
    documents: bool = False
    padded: bool = False
    page: int = 0
    rule: str = "standard"
    given: tuple[str, ...] = ()
    backward: bool = False

    @property
    def line(self):
        batch, heads, kv_heads, queries, keys, dim = self.shape
        words = ["causal:bottom_right"] * self.causal + [f"window={self.window}:0"] * (self.window >= 0)
        words += ["right_padding"] * self.padded + ["documents=3"] * self.documents
        parts = [f"dt={self.type}", f"shape={batch}x{heads}:{kv_heads}x{queries}x{keys}x{dim}", f"rule={self.rule}"]
        others = {
            "attn_mask": "admitted=1", "bias": "bias=1", "sinks": "sink=1", "soft_cap": "cap=30", "lambda": "lambda=1",
            "dropout": "dropout=0.1 dropout_seed=3",
        }  # fmt: skip
        of_mask = {"key_begin": "left_padding", "prefix_keys": "prefix=5"}
        words += [of_mask.get(word, word) for word in self.given if word not in others]
        parts += [others[word] for word in self.given if word in others] + ["bwd=1"] * self.backward
        return " ".join(parts + ["mask=" + ",".join(words)] * bool(words) + [f"pages={self.page}"] * (self.page > 0))

    def __str__(self):
        return f"{self.wanted} {self.line}"

    @property
    def languages(self):
        """JAX has no pages and no lists of positions on a device, and counts supports in another type."""
        others = self.documents or self.padded or self.page or self.backward is False and self.wanted == "all"
        lists = {"lambda", "key_begin", "prefix_keys", "dropout"} & {*self.given}
        return IN if not (others or lists) else IN.keys() - {"JAX"}

    def run(self):
        """Makes the call in Python. Returns the addresses of arguments and results, by their names in C++."""
        batch, heads, kv_heads, queries, keys, dim = self.shape
        table = torch.zeros(batch, -(-keys // self.page), dtype=torch.int32) if self.page else None
        dtype, caches = kernels.TYPES[self.type], table.numel() if self.page else batch
        q = torch.empty(batch, heads, queries, dim, dtype=dtype)
        k, v = (torch.empty(caches, kv_heads, self.page or keys, dim, dtype=dtype) for _ in "kv")
        lists = {}
        if self.documents:
            lists = {name: torch.zeros(4, dtype=torch.int64) for name in ("cu_seqlens_q", "cu_seqlens_k")}
            lists["cu_seqlens_q"][-1], lists["cu_seqlens_k"][-1] = queries, keys
        if self.padded:
            lists["key_end"] = torch.full((batch,), keys)
        window = (self.window, 0 if self.window >= 0 else -1)
        arguments, tensors = self.arguments()
        call = call_of(q, k, v, causal=self.causal, window_size=window, rule=self.rule, **lists, **arguments)
        results = self.gradients(call) if self.backward else {
            "output": forward(Operands(call, table), kernels.WANTED[self.wanted])[0]
        }  # fmt: skip
        named = {"q": q, "k": k, "v": v, **results, **lists, **tensors} | ({"block_table": table} if self.page else {})
        return {name: x.data_ptr() for name, x in named.items()}

    def arguments(self):
        """Returns other arguments in Python, and those that are tensors by their names in C++."""
        batch, heads, _, queries, keys, _ = self.shape
        tensors = {
            "attn_mask": torch.ones(batch, heads, queries, keys, dtype=torch.bool),
            "bias": torch.zeros(batch, heads, queries, keys), "sinks": torch.zeros(heads),
            "lambda": torch.ones(batch, heads, queries), "key_begin": torch.zeros(batch, dtype=torch.int64),
            "prefix_keys": torch.full((batch,), 5),
        }  # fmt: skip
        tensors = {name: x for name, x in tensors.items() if name in self.given}
        arguments = {"lambda_" if name == "lambda" else name: x for name, x in tensors.items()}
        if "soft_cap" in self.given:
            arguments["soft_cap"] = 30.0
        if "dropout" in self.given:
            arguments |= {"dropout_p": 0.1, "dropout_seed": torch.tensor(3)}
        arguments |= {name: int(number) for name, _, number in (word.partition("=") for word in self.given) if number}
        return arguments, tensors

    def gradients(self, call):
        """Makes the backward pass in Python. Returns its tensors by their names in C++."""
        wanted = kernels.WANTED.get(self.wanted, LSE)
        output, d_output = torch.empty_like(call.q), torch.empty_like(call.q)
        statistics = torch.empty(wanted.bit_count(), *call.q.shape[:3])
        d_statistics = None if self.wanted == "none" else torch.empty_like(statistics)
        wants = (name in self.given for name in ("bias", "lambda", "sinks"))
        results = launch.attention_backward(*call, wanted, output, statistics, d_output, d_statistics, *wants, False)
        named = dict(zip(("dq", "dk", "dv", "d_bias", "d_lambda", "d_sinks"), results))
        return {"output": output, "d_output": d_output, **{name: x for name, x in named.items() if x.numel() > 0}}

    def launches(self, target):
        with launches(target) as recorded:
            self.run()
        return recorded


# Full, causal, window, packed, padded, few rows, split keys, paged cache; each set of statistics, type and dimension.
CASES = [
    Case("lse", (4, 32, 8, 256, 256, 64)),
    Case("lse", (4, 32, 8, 256, 256, 64), causal=True),
    Case("entropy", (4, 32, 8, 256, 256, 64), window=100, rule="log_length(length=total)*attn_temperature_tuning"),
    Case("entropy", (1, 8, 8, 1024, 1024, 64), causal=True, rule="entropy_invariant(base=512)"),
    Case("all", (1, 8, 8, 300, 300, 128), type="f16", causal=True, documents=True, rule="ssmax(s=[1,2,3,4,5,6,7,8])"),
    Case("all", (1, 8, 8, 300, 300, 128), type="f16"),
    Case("lse", (2, 4, 1, 128, 1024, 128), type="f16", padded=True, rule="attn_temperature_tuning"),
    Case("all", (2, 8, 2, 1, 2000, 64), page=16, padded=True),
    Case("entropy", (4, 8, 2, 2, 100, 128), causal=True),
    Case("lse", (2, 8, 2, 1, 2048, 64), page=64, padded=True),
    Case("all", (2, 8, 2, 128, 128, 64), given=("attn_mask", "bias", "sinks", "soft_cap"), rule="log_length"),
    Case("lse", (2, 8, 2, 128, 256, 64), given=("lambda", "dropout"), causal=True),
    Case("lse", (2, 8, 2, 2, 2048, 64), given=("lambda", "attn_mask", "dilation=2")),
    Case("lse", (2, 8, 2, 1, 2048, 64), given=("lambda", "sinks"), page=16, padded=True),
    Case("all", (2, 8, 2, 128, 256, 64), given=("key_begin", "prefix_keys"), causal=True),
    Case("none", (1, 8, 2, 256, 256, 64), backward=True),
    Case("lse", (2, 8, 2, 256, 256, 128), backward=True, causal=True, rule="attn_temperature_tuning"),
    Case("all", (2, 8, 2, 256, 256, 64), backward=True, documents=True),
    Case("all", (2, 8, 2, 128, 128, 64), backward=True, given=("attn_mask", "bias", "sinks", "soft_cap", "dropout")),
    Case("lse", (2, 8, 2, 128, 128, 128), type="f16", backward=True, given=("attn_mask",), causal=True),
    Case("entropy", (2, 8, 2, 128, 128, 64), type="f16", backward=True, given=("bias", "sinks")),
    Case("entropy", (2, 8, 2, 128, 128, 64), backward=True, given=("lambda", "dilation=2"), causal=True),
]  # fmt: skip


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
    left_out = {"bounds"} if case.type != "f16" else set()  # in other types bounds are a placeholder
    if environment == IN["JAX"]:  # whose layout is another
        left_out |= {x.name for one in parameters for x in one if x.name.startswith("stride_")}
    assert renamed(map(recorded_parameters, made, parameters), addresses, left_out) == renamed(parameters, wanted_named, left_out)
    assert all(one["stream"] == stream and not one["extra"] for one in made)
    return recorded, [(one, kernel) for one, (kernel, *_) in zip(made, wanted)], named
