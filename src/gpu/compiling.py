"""Compiles the kernels of a call for chips that need not be present, and reads their resources.

Triton compiles for NVIDIA and AMD chips without a driver, and includes tools that report registers, spills, shared
memory and instructions of the result.
"""

from __future__ import annotations

import collections
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
import triton
from torch import Tensor
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from isentrope.gpu import plan
from src.gpu import disassembly
from src.gpu.disassembly import Loop


class Target(NamedTuple):
    """A chip for the plan and for Triton, and the bytes of shared memory that a kernel may have there."""

    chip: plan.Chip
    gpu: GPUTarget
    shared: int


TARGETS = {
    # Others use the tiles of sm_80, with less shared memory.
    "sm_80": Target(plan.nvidia(8, 0, 108), GPUTarget("cuda", 80, 32), 99 << 10),
    "sm_90": Target(plan.nvidia(9, 0, 132), GPUTarget("cuda", 90, 32), 227 << 10),
    "sm_100": Target(plan.nvidia(10, 0, 148), GPUTarget("cuda", 100, 32), 227 << 10),
    "sm_86": Target(plan.nvidia(8, 6, 84), GPUTarget("cuda", 86, 32), 99 << 10),
    "sm_89": Target(plan.nvidia(8, 9, 128), GPUTarget("cuda", 89, 32), 99 << 10),
    "sm_120": Target(plan.nvidia(12, 0, 170), GPUTarget("cuda", 120, 32), 99 << 10),
    "gfx942": Target(plan.Chip("gfx", 304), GPUTarget("hip", "gfx942", 64), 64 << 10),
}
# Most kernels spill here, so it is not among the targets of tests that compile all kernels.
RDNA = Target(plan.Chip("rdna", 96), GPUTarget("hip", "gfx1100", 32), 64 << 10)

_TYPES = {
    torch.float32: "fp32", torch.float64: "fp64", torch.bfloat16: "bf16", torch.float16: "fp16", torch.int64: "i64",
    torch.int32: "i32", torch.bool: "u1",
}  # fmt: skip


class Launch(NamedTuple):
    """A launch: everything that a kernel's compilation depends on."""

    kernel: JITFunction
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    divisible: tuple[int, ...]
    options: tuple[tuple[str, Any], ...]

    @property
    def name(self) -> str:
        """Name of the kernel, and whether it is the repair launch that recomputes programs with non-finite sums."""
        repair = "_repair" if dict(self.constants).get("REPAIR") else ""
        return self.kernel.__name__.removesuffix("_kernel") + repair


class Compiled(NamedTuple):
    """Resources of a compiled kernel. registers of a thread; spilled: bytes of local memory (NVIDIA) or vector
    registers (AMD); shared memory in bytes; instructions of the whole kernel, and of them those of tensor cores by
    name; its loops (NVIDIA)."""

    registers: int
    spilled: int
    shared: int
    instructions: int
    products: dict[str, int]
    loops: tuple[Loop, ...] = ()


class Call(NamedTuple):
    """A launch that was recorded: its kernel, its programs, and its arguments by the names of the kernel."""

    launch: Launch
    grid: tuple[int, ...]
    values: dict[str, Any]


@contextmanager
def _instead(target: Target, take: Callable[[Call], None]) -> Iterator[None]:
    """Records launches inside the block instead of running them."""

    def run(self: JITFunction, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        values = dict(zip(self.arg_names, args)) | {name: x for name, x in options.items() if name in self.arg_names}
        others = {name: value for name, value in options.items() if name not in self.arg_names}
        take(Call(_launch(self, values, others), grid, values))

    with mock.patch.object(JITFunction, "run", run), mock.patch.object(plan, "chip_of", lambda _: target.chip):
        yield


@contextmanager
def calls(target: Target) -> Iterator[list[Call]]:
    """Yields the launches inside the block, with CPU tensors, as planned for the target; nothing runs."""
    recorded: list[Call] = []
    with _instead(target, recorded.append):
        yield recorded


@contextmanager
def launches(target: Target) -> Iterator[list[Launch]]:
    """Yields the distinct kernels of the launches inside the block."""
    recorded: list[Launch] = []

    def take(call: Call) -> None:
        if call.launch not in recorded:
            recorded.append(call.launch)

    with _instead(target, take):
        yield recorded


def _launch(kernel: JITFunction, values: dict[str, Any], options: dict[str, Any]) -> Launch:
    signature, constants, divisible = [], [], []
    for index, (name, parameter) in enumerate(zip(kernel.arg_names, kernel.params)):
        value = values[name]
        if value is None or parameter.is_constexpr or (isinstance(value, int) and value == 1 and not parameter.do_not_specialize):
            signature.append((name, "constexpr"))
            constants.append((name, value))
            continue
        if isinstance(value, Tensor):
            signature.append((name, "*" + _TYPES[value.dtype]))
            divisible.append(index)
        elif isinstance(value, TensorDescriptor):
            signature.append((name, f"tensordesc<{_TYPES[value.base.dtype]}{list(value.block_shape)}>"))
        elif isinstance(value, float):
            signature.append((name, "fp32"))
        else:
            signature.append((name, "i32" if -(1 << 31) <= value < 1 << 31 else "i64"))
            if value % 16 == 0 and not parameter.do_not_specialize:
                divisible.append(index)
    return Launch(kernel, tuple(signature), tuple(constants), tuple(divisible), tuple(options.items()))


def _source(launch: Launch, aligned: bool) -> ASTSource:
    attributes: dict[tuple[int, ...], list] = {(index,): [["tt.divisibility", 16]] for index in launch.divisible if aligned}
    return ASTSource(launch.kernel, dict(launch.signature), constexprs=dict(launch.constants), attrs=attributes)


def binary(launch: Launch, target: Target, aligned: bool = True) -> Any:
    """Returns the kernel compiled by Triton. aligned: addresses and strides are multiples of 16, as in most calls."""
    return triton.compile(_source(launch, aligned), target=target.gpu, options=dict(launch.options))


def ttgir(launch: Launch, target: Target) -> str:
    """Returns the TTGIR of a kernel: its operations with their layouts. Takes half a second, without later stages."""
    return str(stages_until("ttgir", launch, target))


def stages_until(last: str, launch: Launch, target: Target) -> Any:
    """Compiles a kernel up to one of Triton's stages, and returns its code."""
    source = _source(launch, aligned=True)
    backend = make_backend(target.gpu)
    options = backend.parse_options(dict(launch.options) | source.parse_options())
    stages: dict[str, Callable[..., Any]] = {}
    backend.add_stages(stages, options, source.language)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = source.make_ir(target.gpu, options, backend.get_codegen_implementation(options), backend.get_module_map(), context)
    metadata = {"target": target.gpu, **options.__dict__}
    for name, stage in stages.items():
        module = stage(module, metadata)
        if name == last:
            break
    return module


# A layout of mma version 2: its name. A product: its first operand's rows, columns, type, layout and columns of a lane.
_LAYOUT = re.compile(r"^(#\w+) = #ttg\.nvidia_mma<\{versionMajor = 2,", re.MULTILINE)
_PRODUCT = re.compile(r"tt\.dot .*?tensor<(\d+)x(\d+)x(\w+), #ttg\.dot_op<\{opIdx = 0, parent = (#\w+), kWidth = (\d+)\}>>")


class Product(NamedTuple):
    """A product of tiles in TTGIR: its first operand [rows, columns], `width` columns in each of four lanes."""

    rows: int
    columns: int
    type: str
    width: int


def wrong_products(code: str) -> list[Product]:
    """Returns products with too many columns a lane, which Triton 3.6 and 3.7 compute wrongly (decision 35)."""
    layouts = _LAYOUT.findall(code)
    products = (Product(int(x[1]), int(x[2]), x[3], int(x[5])) for x in _PRODUCT.finditer(code) if x[4] in layouts)
    return sorted({product for product in products if 4 * product.width > product.columns})


def compiled(launch: Launch, target: Target, aligned: bool = True) -> Compiled:
    kernel = binary(launch, target, aligned)
    return (of_cubin if target.gpu.backend == "cuda" else _of_amdgcn)(kernel)


def _tool(name: str) -> str:
    import triton.backends.nvidia as nvidia

    return str(Path(nvidia.__path__[0]) / "bin" / name)


def of_cubin(kernel: Any) -> Compiled:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()

        def output_of(*command: str) -> str:
            return subprocess.run([*command, file.name], check=True, capture_output=True, text=True).stdout

        usage = output_of(_tool("cuobjdump"), "-res-usage")
        code = output_of(_tool("nvdisasm"), "-c")
    counts = collections.Counter(word.partition(".")[0] for word, _ in disassembly.instructions(code) if word)
    products = {name: counts[name] for name in ("HGMMA", "HMMA", "UTCHMMA", "UTCQMMA") if counts[name]}
    registers, stack = (int(re.search(rf"{name}:(\d+)", usage)[1]) for name in ("REG", "STACK"))
    spilled = stack if counts["LDL"] + counts["STL"] else 0  # some kernels have an unused stack of 8 bytes
    loops = tuple(disassembly.loops(code))
    return Compiled(registers, spilled, kernel.metadata.shared, sum(counts.values()), products, loops)


def _of_amdgcn(kernel: Any) -> Compiled:
    text = kernel.asm["amdgcn"]

    def number(name: str) -> int:
        return int(re.search(rf"\.{name}:\s+(\d+)", text)[1])

    body = text[: text.index(".Lfunc_end")]
    words = re.findall(r"^\t([a-z]\w+)", body, re.MULTILINE)
    counts = {name: sum(word.startswith(f"v_{name.lower()}") for word in words) for name in ("MFMA", "WMMA")}
    products = {name: count for name, count in counts.items() if count}
    spilled = number("vgpr_spill_count")
    return Compiled(number("vgpr_count"), spilled, kernel.metadata.shared, len(words), products)
