"""isentrope_cuda without a device: its calls to an emulated driver against those of Triton's launcher.

CUDA_PROGRAM calls it from C++, CUDA_EXAMPLE is that of examples, CUDA_DRIVER is the folder of a libcuda.so.1 that
records its calls (tests/src/gpu). Kernels are compiled for the calls at hand, by src/gpu/kernels.py.
"""

import io
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from elftools.elf.elffile import ELFFile
from gpu_compiling import TARGETS, calls, launches

from isentrope._core.call import call_of
from isentrope.gpu import launch, plan
from isentrope.gpu.operands import Operands

sys.path.append(str(Path(__file__).parents[3] / "src/gpu"))
import kernels  # noqa: E402

FORMATS = {"i32": "<i", "i64": "<q", "fp32": "<f"}


class Case(NamedTuple):
    """A call, as a line for C++ and as tensors for Python."""

    wanted: str
    shape: tuple[int, ...]
    type: str = "bf16"
    causal: bool = False
    window: int = -1
    documents: bool = False
    padded: bool = False
    page: int = 0
    rule: str = "standard"

    @property
    def line(self):
        batch, heads, kv_heads, queries, keys, dim = self.shape
        words = ["causal:bottom_right"] * self.causal + [f"window={self.window}:0"] * (self.window >= 0)
        words += ["right_padding"] * self.padded + ["documents=3"] * self.documents
        parts = [f"dt={self.type}", f"shape={batch}x{heads}:{kv_heads}x{queries}x{keys}x{dim}", f"rule={self.rule}"]
        return " ".join(parts + ["mask=" + ",".join(words)] * bool(words) + [f"pages={self.page}"] * (self.page > 0))

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
        call = call_of(q, k, v, causal=self.causal, window_size=window, rule=self.rule, **lists)
        output, *_ = launch.forward(Operands(call, table), kernels.WANTED[self.wanted])
        named = {"q": q, "k": k, "v": v, "output": output, **lists} | ({"block_table": table} if self.page else {})
        return {name: x.data_ptr() for name, x in named.items()}

    def launches(self, target):
        with launches(target) as found:
            self.run()
        return found


# Full, causal, window, packed and padded calls, few rows, split keys, a paged cache; each set of statistics, both types
# and both dimensions.
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
]  # fmt: skip


def with_units(chip):
    """Environment that sets the number of multiprocessors of the emulated device."""
    return TARGETS[chip]._replace(chip=plan.Chip(TARGETS[chip].chip.kind, 132))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder with the kernels of every case on sm_90, and of the first one on sm_80 too."""
    found = [("sm_90", one) for case in CASES for one in case.launches(with_units("sm_90"))]
    found += [("sm_80", one) for one in CASES[0].launches(with_units("sm_80"))]
    path = tmp_path_factory.mktemp("kernels")
    kernels.write(path, list(dict.fromkeys(found)), jobs=2)
    return path


def called(folder, wanted, line, tmp_path, **environment):
    """Returns the program's output, its errors, and the driver's recorded calls."""
    told = tmp_path / "calls"
    told.unlink(missing_ok=True)
    environment = {"LD_LIBRARY_PATH": os.environ["CUDA_DRIVER"], "ISENTROPE_CUDA_CALLS": str(told), **environment}
    done = subprocess.run(
        [os.environ["CUDA_PROGRAM"], folder, wanted, line], env=os.environ | environment, capture_output=True, text=True
    )
    return done, [json.loads(x) for x in told.read_text().splitlines()] if told.exists() else []


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

    with calls(target) as found:
        named = case.run()
    made = [
        (
            call.launch, [*call.grid, 1, 1][:3],
            [passed(name, kind, call.values[name]) for name, kind in call.launch.signature if kind != "constexpr"],
        )
        for call in found
    ]  # fmt: skip
    return made, named


def told_as(one, wanted):
    """Returns the recorded parameters; `wanted` says which are addresses."""
    *passed, global_scratch, profile_scratch = one["parameters"]
    assert (int(global_scratch, 16), int(profile_scratch, 16)) == (0, 0)
    assert len(passed) == len(wanted), one["symbol"]
    return [
        Passed(w.name, None, x) if w.address is None else Passed(w.name, int.from_bytes(bytes.fromhex(x), "little"))
        for x, w in zip(passed, wanted)
    ]


def renamed(launches, named):
    """Replaces addresses by names, or by the order of their first use."""
    names = {0: "nothing"} | {at: name for name, at in named.items()}

    def place(address):
        return names.setdefault(address, len(names))

    return [[(x.name, x.number if x.address is None else place(x.address)) for x in one] for one in launches]


def code_of(kernel):
    """Returns the bytes of instructions, which distinguish kernels of one name."""
    elf = ELFFile(io.BytesIO(kernel.asm["cubin"]))
    return elf.get_section_by_name(f".text.{kernel.metadata.name}")["sh_size"]


def compare(case, folder, chip, tmp_path, **environment):
    done, told = called(folder, case.wanted, case.line, tmp_path, **environment)
    assert done.returncode == 0, done.stderr
    named = json.loads(done.stdout)
    stream = named.pop("stream")
    made = [one for one in told if one["call"] == "launch"]
    wanted, wanted_named = expected(case, with_units(chip))
    assert [(one["symbol"], one["grid"]) for one in made] == [(one.kernel.__name__, grid) for one, grid, _ in wanted]
    for one, (kernel, *_) in zip(made, wanted):
        # PTX has no instructions before the driver compiles it.
        assert one["kind"] == "ptx" or one["code"] == code_of(kernels.binary(kernel, TARGETS[chip])), one["symbol"]
    parameters = [x for _, _, x in wanted]
    its = {name: named[name] for name in wanted_named}
    assert renamed(map(told_as, made, parameters), its) == renamed(parameters, wanted_named)
    assert all(one["stream"] == stream and not one["extra"] for one in made)
    return told, made, named


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.wanted} {case.line}")
def test_the_driver_is_told_what_triton_would_tell_it(case, folder, tmp_path):
    told, made, named = compare(case, folder, "sm_90", tmp_path)
    assert {one["kind"] for one in made} == {"cubin"}
    manifest = json.loads((folder / "kernels.json").read_text())["kernels"]
    of_forward = {(k["threads"], k["shared"]) for k in manifest if k["symbol"] == "forward_kernel" and k["chip"] == 90}
    for one in made:
        assert one["block"][1:] == [1, 1]
        if one["symbol"] == "forward_kernel":
            assert (one["block"][0], one["shared"]) in of_forward
            # Shared memory above the default must be requested.
            asked = {x["value"] for x in told if x["call"] == "attribute" and x["attribute"] == 8}
            assert one["shared"] <= 48 << 10 or one["shared"] in asked
            assert one["shared"] <= TARGETS["sm_90"].shared
    copied = [one["to"] for one in told if one["call"] == "copy"]
    rows = case.shape[0] * case.shape[1]
    assert set(copied) >= {named["lse"]} and len(copied) == {"lse": 1, "entropy": 2, "all": 8 + rows}[case.wanted]
    assert told[-1] == {"call": "release", "allocations": 0}


def test_parameters_of_a_cubin_are_those_of_the_manifest(folder):
    """Compares number and size of parameters in the manifest with the cubin, parsed by pyelftools."""
    manifest = json.loads((folder / "kernels.json").read_text())["kernels"]
    for kernel in manifest:
        with (folder / f"{kernel['file']}.cubin").open("rb") as file:
            info = ELFFile(file).get_section_by_name(f".nv.info.{kernel['symbol']}").data()
        sizes, at = {}, 0
        while at < len(info):
            form, attribute, length = struct.unpack_from("<BBH", info, at)
            if (form, attribute) == (4, 0x17):
                _, ordinal, _, flags = struct.unpack_from("<IHHI", info, at + 4)
                sizes[ordinal] = flags >> 18
            at += 4 + (length if form == 4 else 0)
        types = [parameter["type"] for parameter in kernel["parameters"]] + ["*i8"] * 2
        assert [sizes[i] for i in range(len(sizes))] == [4 if kind in ("i32", "fp32") else 8 for kind in types]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.wanted} {case.line}")
def test_the_set_has_every_kernel_of_these_calls(case):
    target = with_units("sm_90")
    dim, dtype = case.shape[-1], kernels.TYPES[case.type]
    made = kernels.wanted_launches(TARGETS["sm_90"], dtype, dim, kernels.WANTED[case.wanted], {case.page or 16})
    missing = [one.name for one in case.launches(target) if one not in made]
    assert not missing


def test_a_later_chip_compiles_what_the_oldest_one_has(folder, tmp_path):
    _, made, _ = compare(CASES[0], folder, "sm_80", tmp_path, ISENTROPE_CUDA_CAPABILITY="120")
    assert {one["kind"] for one in made} == {"ptx"}


@pytest.mark.parametrize(("words", "environment", "text"), [
    ("dt=f32 shape=1x1x4x4x64", {}, "[attention] the call must be one that kernels were compiled for; got none in "),
    ("dt=bf16 shape=1x1x4x4x32", {}, "SHAPE.DIM=32"),
    ("dt=bf16 shape=1x1x4x4x64 sink=1", {}, "[attention] sinks must be absent on a device"),
    ("dt=bf16 shape=1x1x4x4x64 mask=right_padding", {"ISENTROPE_ON_HOST": "1"}, "key_end must be on device 0"),
    ("dt=bf16 shape=2x1x4x4x64 mask=right_padding", {"ISENTROPE_STRIDED": "1"}, "key_end must be contiguous on a device; got a stride of 2"),
    ("dt=bf16 shape=1x1x4x4x64", {"ISENTROPE_CUDA_CAPABILITY": "75"}, "[cuda] kernels must have some for compute"),
])  # fmt: skip
def test_errors_say_what_is_missing(words, environment, text, folder, tmp_path):
    done, told = called(folder, "lse", words, tmp_path, **environment)
    assert done.returncode == 2 and text in done.stderr, done.stderr
    assert not any(one["call"] == "launch" for one in told)


def test_the_example_runs_to_its_end(folder):
    """It makes a call that is a case above."""
    environment = os.environ | {"LD_LIBRARY_PATH": os.environ["CUDA_DRIVER"]}
    done = subprocess.run([os.environ["CUDA_EXAMPLE"], folder], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("mean entropy of 8192 rows: "), done.stderr


def test_without_a_folder_or_a_driver(folder, tmp_path):
    done, _ = called(tmp_path / "none", "lse", CASES[0].line, tmp_path)
    assert "[cuda] kernels must be a folder with kernels.json; got" in done.stderr
    (tmp_path / "libcuda.so.1").touch()
    done, _ = called(folder, "lse", CASES[0].line, tmp_path, LD_LIBRARY_PATH=str(tmp_path))
    assert "[cuda] NVIDIA's driver must be installed; got" in done.stderr


@pytest.mark.parametrize(
    "option, text",
    [("--chips", "sm_99"), ("--chips", "gfx942"), ("--types", "f64"), ("--dims", "wide"), ("--pages", ""), ("--pages", "0")],
)
def test_kernels_py_names_an_option_that_is_wrong(monkeypatch, capsys, tmp_path, option, text):
    monkeypatch.setattr(sys, "argv", ["kernels.py", str(tmp_path), option, text])
    with pytest.raises(SystemExit):
        kernels.main()
    assert f"argument {option}: " in capsys.readouterr().err
