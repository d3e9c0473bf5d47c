#!/usr/bin/env python3
"""Compiles the kernels that isentrope_cuda loads, for chips that need not be present, and writes their manifest.

    src/gpu/kernels.py FOLDER [--chips sm_80,sm_90] [--types bf16,f16] [--dims 64,128] [--wanted lse,entropy,all] [--pages 16]
        [--with bias,attn_mask+sinks,dilation=2] [--gradients]

PYTHONPATH must have isentrope, as in the build's python folder. The kernels and tiles are those of Python's functions:
each call below is made in Python, and its launches are compiled instead. Each of `--with` compiles the set once more, for
calls with all arguments that + connects.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

# Set before Triton is imported, so that its kernels are compiled, not interpreted.
os.environ["TRITON_INTERPRET"] = "0"
sys.path.append(str(Path(__file__).parents[2]))

import torch
import triton

from isentrope._core.call import call_of
from isentrope._core.library import BITS, LSE
from isentrope.gpu.kernels.gradient_rows import TERMS, TERMS_OF
from isentrope.gpu.kernels.shares import SHARED
from isentrope.gpu.launch import attention_backward
from isentrope.gpu.launch_forward import forward
from isentrope.gpu.operands import Operands
from isentrope.statistics import ALL
from src.gpu.compiling import TARGETS, Launch, Target, binary, launches

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
WANTED = {"lse": LSE, "entropy": LSE | BITS["entropy"], "all": ALL}
PAGES = (16,)
NVIDIA = [chip for chip in TARGETS if chip.startswith("sm_")]
# A rule for each length of a row besides its keys: none, its position, the call's, both.
_TOTAL = "log_length(length=total)"
_RULES = ("standard", "attn_temperature_tuning", _TOTAL, f"{_TOTAL}*attn_temperature_tuning")
# The oldest chip: newer chips without a cubin compile its PTX when they load it. PTX for sm_90 runs on no other chip.
_PORTABLE = "sm_80"


# Arguments that kernels are compiled for on request; dilation has a number.
WITH = ("attn_mask", "bias", "sinks", "soft_cap", "dropout", "lambda", "key_begin", "prefix_keys")


class Made(NamedTuple):
    """A call whose kernels are compiled. documents: packed; page: of a cache, 0 for none; padded: with key_end.

    given: arguments of WITH, and dilation=2."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    causal: bool = False
    documents: bool = False
    page: int = 0
    padded: bool = False
    rule: str = "standard"
    given: tuple[str, ...] = ()

    def arguments(self) -> dict[str, Any]:
        """Returns those of the call besides q, k and v."""
        pairs = self.batch, self.heads, self.queries, self.keys
        found: dict[str, Any] = {"causal": self.causal, "rule": self.rule}
        if self.documents:
            found |= dict.fromkeys(("cu_seqlens_q", "cu_seqlens_k"), torch.tensor([0, self.queries]))
        if self.padded:
            found["key_end"] = torch.full((self.batch,), self.keys)
        for word in self.given:
            name, _, number = word.partition("=")
            found |= {
                "attn_mask": {name: _thin(torch.bool, *pairs)},
                "bias": {name: _thin(torch.float32, *pairs)},
                "sinks": {name: torch.zeros(self.heads)},
                "soft_cap": {name: 30.0},
                "dropout": {"dropout_p": 0.1, "dropout_seed": torch.tensor(0)},
                "lambda": {"lambda_": _thin(torch.float32, *pairs[:3])},
                "key_begin": {name: torch.zeros(self.batch, dtype=torch.int64)},
                "prefix_keys": {name: torch.zeros(self.batch, dtype=torch.int64)},
                "dilation": {name: int(number or 0)},
            }[name]
        return found

    def call(self, dtype: torch.dtype, dim: int) -> tuple[Any, torch.Tensor | None]:
        """Returns the call's arguments and its page table."""
        pages = self.batch * -(-self.keys // self.page) if self.page else self.batch
        q = _thin(dtype, self.batch, self.heads, self.queries, dim)
        k = _thin(dtype, pages, self.kv_heads, self.page or self.keys, dim)
        table = torch.zeros(self.batch, pages // self.batch, dtype=torch.int32) if self.page else None
        return call_of(q, k, k, **self.arguments()), table

    def run(self, dtype: torch.dtype, dim: int, wanted: int) -> None:
        call, table = self.call(dtype, dim)
        forward(Operands(call, table), wanted)

    def run_backward(self, dtype: torch.dtype, dim: int, wanted: int) -> None:
        """Runs backward passes with and without gradients of statistics, bias, lambda and sinks."""
        call, _ = self.call(dtype, dim)
        output, statistics = call.q, torch.empty(wanted.bit_count(), *call.q.shape[:3])
        upstream = (None, statistics) if wanted == LSE else (statistics,)
        wants = (sorted({False, name in self.given}) for name in ("bias", "lambda", "sinks"))
        for d_statistics, *others in itertools.product(upstream, *wants):
            attention_backward(*call, wanted, output, statistics, output, d_statistics, *others, False)


def _thin(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Returns a tensor of any shape that takes the memory of its last two axes. Its outer strides are 0, so that no kernel
    has tensor descriptors, which C++ does not pass."""
    *outer, rows, columns = shape
    return torch.empty(rows, columns, dtype=dtype).expand(*outer, rows, columns)


def made(pages: Iterable[int], given: tuple[str, ...] = ()) -> Iterator[Made]:
    """Yields calls that together launch every kernel. They have many rows or few, whose keys are split or not, and masks that hide keys from some rows of a tile or
    none. Caches have pages of the given sizes, and rules read every length. Decode steps have no boolean mask and no bias."""
    if {"attn_mask", "bias"} & {*given}:
        pages = ()
    for causal, few in itertools.product((False, True), (False, True)):
        queries = (2 if causal else 1) if few else 1024
        for page in (0, *pages) if few else (0,):
            yield Made(128, 32, 8, queries, 4096, causal, page=page, given=given)
            yield Made(1, 8, 8, min(queries, 128), 8192, causal, page=page, given=given)
    for rule in _RULES if "lambda" not in given else ("standard",):
        yield Made(4, 32, 8, 1024, 1024, rule=rule, given=given)
        for queries in (1, 1024):
            yield Made(1, 8, 8, queries, queries, documents=True, rule=rule, given=given)
        for queries, padded in ((1, False), (1, True), (1024, True)):
            yield Made(128, 32, 8, queries, 4096, padded=padded, rule=rule, given=given)


def made_backward(given: tuple[str, ...] = ()) -> Iterator[Made]:
    """Yields calls whose backward passes together launch every kernel."""
    yield Made(1, 8, 8, 1024, 1024, causal=True, given=given)
    for rule in _RULES if "lambda" not in given else ("standard",):
        for documents, padded in ((False, False), (True, False), (False, True)):
            yield Made(1, 8, 8, 1024, 1024, documents=documents, padded=padded, rule=rule, given=given)


def wanted_launches(
    target: Target, dtype: torch.dtype, dim: int, wanted: int, pages: Iterable[int] = PAGES, given: tuple[str, ...] = (),
    gradients: bool = False,
) -> list[Launch]:  # fmt: skip
    with launches(target) as found:
        for one in made(pages, given):
            one.run(dtype, dim, wanted)
        for one in made_backward(given) if gradients else ():
            one.run_backward(dtype, dim, wanted)
    return found


def flat(constants: Any) -> dict[str, int]:
    """Returns a kernel's compile-time parameters as numbers: SHAPE.DIM, WANTED.LSE, PACKED, stride_qd."""
    found: dict[str, int] = {}
    for name, value in constants:
        members = value._asdict() if isinstance(value, tuple) else {"": value}
        for member, number in members.items():
            if isinstance(number, int):
                found[f"{name}.{member}" if member else name] = int(number)
    return found


def entry(launch: Launch, chip: str, folder: Path) -> dict[str, Any]:
    """Compiles a kernel into the folder. Returns the data needed to launch it."""
    kernel = binary(launch, TARGETS[chip])
    metadata, file = kernel.metadata, f"{launch.name}-{chip}-{kernel.hash[:12]}"
    if metadata.global_scratch_size or metadata.profile_scratch_size or metadata.num_ctas != 1:
        raise SystemExit(f"{launch.name} must take no scratch memory and no clusters; got {metadata}")
    (folder / f"{file}.cubin").write_bytes(kernel.asm["cubin"])
    if chip == _PORTABLE:
        (folder / f"{file}.ptx").write_text(kernel.asm["ptx"])
    signature = [(i, name, kind) for i, (name, kind) in enumerate(launch.signature) if kind != "constexpr"]
    return {
        "kernel": launch.kernel.__name__.removesuffix("_kernel"), "chip": int(chip.removeprefix("sm_")), "file": file,
        "symbol": metadata.name, "threads": 32 * metadata.num_warps, "shared": metadata.shared,
        "constants": flat(launch.constants),
        "parameters": [
            {"name": name, "type": kind, "divisible": i in launch.divisible} for i, name, kind in signature
        ],
    }  # fmt: skip


def write(folder: Path, found: Iterable[tuple[str, Launch]], jobs: int = 1) -> None:
    """Compiles the kernels, each for the chip named with it, into the folder, and writes their manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(jobs) as pool:
        entries = list(pool.map(lambda one: entry(one[1], one[0], folder), found))
    manifest = {
        "version": 3, "triton": triton.__version__, "numbers": {"SHARED": SHARED.value, "TERMS": TERMS.value},
        "terms": {name: sorted(terms) for name, terms in TERMS_OF.items()}, "kernels": entries,
    }  # fmt: skip
    (folder / "kernels.json").write_text(json.dumps(manifest, indent=1) + "\n")


def each_of(names: Collection[str]) -> Callable[[str], list[str]]:
    """Returns the type of an option that takes some of these names, separated by commas."""

    def read(text: str) -> list[str]:
        if unknown := [name for name in text.split(",") if name not in names]:
            raise argparse.ArgumentTypeError(f"must be some of {','.join(names)}; got {unknown[0]}")
        return text.split(",")

    return read


def combinations(text: str) -> list[tuple[str, ...]]:
    """Returns the arguments of each combination in bias,attn_mask+dilation=2."""
    found = [tuple(one.split("+")) for one in text.split(",")]
    for word in itertools.chain(*found):
        name, _, number = word.partition("=")
        if word not in WITH and not (name == "dilation" and number.isdecimal() and int(number) > 1):
            raise argparse.ArgumentTypeError(f"must be some of {','.join(WITH)},dilation=2; got {word}")
    return found


def counts(text: str) -> list[int]:
    if not all(count.isdecimal() and int(count) > 0 for count in text.split(",")):
        raise argparse.ArgumentTypeError(f"must be numbers of at least 1; got {text}")
    return [int(count) for count in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--chips", type=each_of(NVIDIA), default="sm_80,sm_90")
    parser.add_argument("--types", type=each_of(TYPES), default="bf16,f16")
    parser.add_argument("--dims", type=counts, default="64,128")
    parser.add_argument("--wanted", type=each_of(WANTED), default="lse,entropy,all")
    parser.add_argument("--pages", type=counts, default=list(PAGES), help="keys of a page")
    parser.add_argument("--with", dest="combinations", type=combinations, default=[], help="arguments, as in bias,attn_mask+sinks")
    parser.add_argument("--gradients", action="store_true", help="backward passes too")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    found: dict[tuple[str, Launch], None] = {}
    sets = [(), *given.combinations]
    for chip, kind, dim, wanted, one in itertools.product(given.chips, given.types, given.dims, given.wanted, sets):
        them = wanted_launches(TARGETS[chip], TYPES[kind], dim, WANTED[wanted], given.pages, one, given.gradients)
        found |= dict.fromkeys((chip, one) for one in them)
    write(given.folder, found, given.jobs)


if __name__ == "__main__":
    main()
