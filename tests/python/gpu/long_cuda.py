"""isentrope_cuda without a device: its calls to an emulated driver against those of Triton's launcher.

The variable CUDA_PROGRAM names a program that calls it from C++ or C, CUDA_EXAMPLES the programs of examples. CUDA_DRIVER is
the folder of a libcuda.so.1 that records its calls (tests/src/gpu). Kernels are compiled for the calls at hand, by
src/gpu/kernels.py.
"""

import io
import json
import os
import struct
import subprocess
import sys

import pytest
from cuda_calls import CASES, IN, Case, called, compare, kernels, with_units
from elftools.elf.elffile import ELFFile

from src.gpu.compiling import TARGETS
from src.gpu.lines import Line

# Kernels of all statistics take long to compile, and test_cuda_calls.py has the other calls.
COMPILED = [case for case in CASES if not case.backward or case.wanted != "all"]


def code_of(kernel):
    """Returns the bytes of instructions, which distinguish kernels of one name."""
    elf = ELFFile(io.BytesIO(kernel.asm["cubin"]))
    return elf.get_section_by_name(f".text.{kernel.metadata.name}")["sh_size"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder with the kernels of every case on sm_90, and of the first one on sm_80 too."""
    wanted = [("sm_90", one) for case in COMPILED for one in case.launches(with_units("sm_90"))]
    wanted += [("sm_80", one) for one in CASES[0].launches(with_units("sm_80"))]
    path = tmp_path_factory.mktemp("kernels")
    kernels.write(path, list(dict.fromkeys(wanted)), jobs=2)
    return path


@pytest.mark.parametrize("case", COMPILED, ids=str)
def test_the_driver_is_told_what_triton_would_tell_it(case, folder, tmp_path):
    recorded, made, _ = compare(case, folder, "sm_90", tmp_path)
    assert {one["kind"] for one, _ in made} == {"cubin"}
    manifest = json.loads((folder / "kernels.json").read_text())["kernels"]
    of_forward = {(k["threads"], k["shared"]) for k in manifest if k["symbol"] == "forward_kernel" and k["chip"] == 90}
    for one, wanted in made:
        assert one["code"] == code_of(kernels.binary(wanted, TARGETS["sm_90"])), one["symbol"]
        assert one["block"][1:] == [1, 1]
        if one["symbol"] == "forward_kernel":
            assert (one["block"][0], one["shared"]) in of_forward
            # Shared memory above the default must be requested.
            asked = {x["value"] for x in recorded if x["call"] == "attribute" and x["attribute"] == 8}
            assert one["shared"] <= 48 << 10 or one["shared"] in asked
            assert one["shared"] <= TARGETS["sm_90"].shared
    assert recorded[-1] == {"call": "release", "allocations": 0}


def test_parameters_of_a_cubin_are_those_of_the_manifest(folder):
    """Compares number and size of parameters in the manifest with the cubin, parsed by pyelftools."""
    manifest = json.loads((folder / "kernels.json").read_text())["kernels"]
    for kernel in manifest:
        with (folder / f"{kernel['file']}.cubin").open("rb") as file:
            info = ELFFile(file).get_section_by_name(f".nv.info.{kernel['symbol']}").data()
        sizes, offset = {}, 0
        while offset < len(info):
            form, attribute, length = struct.unpack_from("<BBH", info, offset)
            if (form, attribute) == (4, 0x17):
                _, ordinal, _, flags = struct.unpack_from("<IHHI", info, offset + 4)
                sizes[ordinal] = flags >> 18
            offset += 4 + (length if form == 4 else 0)
        types = [parameter["type"] for parameter in kernel["parameters"]] + ["*i8"] * 2
        assert [sizes[i] for i in range(len(sizes))] == [4 if kind in ("i32", "fp32") else 8 for kind in types]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_set_has_every_kernel_of_these_calls(case):
    target = with_units("sm_90")
    line = Line(case.line)
    pages, wanted = [int(line.fields.get("pages", 16))], "lse" if case.wanted == "none" else case.wanted
    made = kernels.wanted_launches(TARGETS["sm_90"], line.fields["dt"], line.dim, wanted, pages, case.given, case.backward)
    missing = [one.name for one in case.launches(target) if one not in made]
    assert not missing


def test_a_later_chip_compiles_what_the_oldest_one_has(folder, tmp_path):
    _, made, _ = compare(CASES[0], folder, "sm_80", tmp_path, ISENTROPE_CUDA_CAPABILITY="120")
    assert {one["kind"] for one, _ in made} == {"ptx"}


@pytest.mark.parametrize(("words", "environment", "text"), [
    ("dt=f32 shape=1x1x4x4x64", {}, "[attention] the call must be one that kernels were compiled for; got none in "),
    ("dt=bf16 shape=1x1x4x4x32", {}, "SHAPE.DIM=32"),
    ("dt=bf16 shape=1x1x4x4x64 sink=1 cap=7", {}, "SHAPE.CAPPED=1"),
    ("dt=bf16 shape=1x1x4x4x64 cache=64", {}, "[attention] k_scale must be absent on a device"),
    ("dt=bf16 shape=1x1x4x4x64 mask=right_padding", {"ISENTROPE_ON_HOST": "1"}, "key_end must be on device 0"),
    ("dt=bf16 shape=2x1x4x4x64 mask=right_padding", {"ISENTROPE_STRIDED": "1"}, "key_end must be contiguous on a device; got a stride of 2"),
    ("dt=bf16 shape=1x1x4x4x64", {"ISENTROPE_CUDA_CAPABILITY": "75"}, "[cuda] kernels must have some for compute"),
])  # fmt: skip
def test_errors_say_what_is_missing(words, environment, text, folder, tmp_path):
    for language in Case("lse", words).languages:
        done, recorded = called(folder, "lse", words, tmp_path, **environment, **IN[language])
        assert done.returncode == 2 and text in done.stderr, (language, done.stderr)
        assert not any(one["call"] == "launch" for one in recorded)


@pytest.mark.parametrize("program", os.environ["CUDA_EXAMPLES"].split(":"))
def test_the_examples_run_to_their_end(folder, program):
    """They make a call that is a case above."""
    environment = os.environ | {"LD_LIBRARY_PATH": os.environ["CUDA_DRIVER"]}
    done = subprocess.run([program, folder], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("mean entropy of 8192 rows: "), done.stderr


def test_without_a_folder_or_a_driver(folder, tmp_path):
    done, _ = called(tmp_path / "none", "lse", CASES[0].line, tmp_path)
    assert "[cuda] kernels must be a folder with kernels.json; got" in done.stderr
    (tmp_path / "libcuda.so.1").touch()
    done, _ = called(folder, "lse", CASES[0].line, tmp_path, LD_LIBRARY_PATH=str(tmp_path))
    assert "[cuda] NVIDIA's driver must be installed; got" in done.stderr


@pytest.mark.parametrize(
    "option, text",
    [("--chips", "sm_99"), ("--chips", "gfx942"), ("--types", "f64"), ("--dims", "wide"), ("--pages", ""), ("--pages", "0"), ("--with", "bias+mask"), ("--with", "dilation=1")],
)
def test_kernels_py_names_an_option_that_is_wrong(monkeypatch, capsys, tmp_path, option, text):
    monkeypatch.setattr(sys, "argv", ["kernels.py", str(tmp_path), option, text])
    with pytest.raises(SystemExit):
        kernels.main()
    assert f"argument {option}: " in capsys.readouterr().err
