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
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

# Set before Triton is imported, so that its kernels are compiled, not interpreted.
os.environ["TRITON_INTERPRET"] = "0"
sys.path.append(str(Path(__file__).parents[2]))

import triton

from isentrope.gpu.kernels.gradient_rows import TERMS
from isentrope.gpu.kernels.shares import SHARED
from src.gpu.compiling import TARGETS, Launch, Target, binary, launches
from src.gpu.lines import WANTED, Line

TYPES = ("bf16", "f16")
PAGES = (16,)
NVIDIA = [chip for chip in TARGETS if chip.startswith("sm_")]
# A rule for each length of a row besides its keys: none, its position, the call's, both.
_TOTAL = "log_length(length=total)"
_RULES = ("standard", "attn_temperature_tuning", _TOTAL, f"{_TOTAL}*attn_temperature_tuning")
# The oldest chip: newer chips without a cubin compile its PTX when they load it. PTX for sm_90 runs on no other chip.
_PORTABLE = "sm_80"


# Arguments that kernels are compiled for on request, with their words in a problem line. Dilation has a number.
WITH = {
    "attn_mask": "admitted=1", "bias": "bias=1", "sinks": "sink=1", "soft_cap": "cap=30", "dropout": "dropout=0.1 dropout_seed=3",
    "lambda": "lambda=1", "key_begin": "left_padding", "prefix_keys": "prefix=5",
}  # fmt: skip


def words_of(given: tuple[str, ...]) -> tuple[str, list[str]]:
    """Returns the words of a problem line for arguments of WITH, and those of its mask."""
    of_mask = [name for name in given if name in ("key_begin", "prefix_keys") or name not in WITH]
    return " ".join(WITH[name] for name in given if name not in of_mask), [WITH.get(name, name) for name in of_mask]


def made(pages: Iterable[int], given: tuple[str, ...] = ()) -> Iterator[str]:
    """Yields problems that together launch every kernel, without types and head dimension. They have many rows or few, whose keys
    are split or not, and masks that hide keys from some rows of a tile or none. Caches have pages of the given sizes, and rules
    read every length. Decode steps have no boolean mask and no bias."""
    others, masks = words_of(given)

    def line(shape: str, *mask: str, rule: str = "standard", page: int = 0) -> str:
        all_masks = ",".join([*mask, *masks])
        return f"shape={shape} rule={rule} {others}" + f" mask={all_masks}" * bool(all_masks) + f" pages={page}" * (page > 0)

    if {"attn_mask", "bias"} & {*given}:
        pages = ()
    for causal, few in itertools.product((False, True), (False, True)):
        queries, mask = (2 if causal else 1) if few else 1024, ["causal:bottom_right"] * causal
        for page in (0, *pages) if few else (0,):
            yield line(f"128x32:8x{queries}x4096", *mask, page=page)
            yield line(f"1x8x{min(queries, 128)}x8192", *mask, page=page)
    for rule in _RULES if "lambda" not in given else ("standard",):
        yield line("4x32:8x1024x1024", rule=rule)
        for queries in (1, 1024):
            yield line(f"1x8x{queries}x{queries}", "documents=1", rule=rule)
        for queries, mask in ((1, []), (1, ["right_padding"]), (1024, ["right_padding"])):
            yield line(f"128x32:8x{queries}x4096", *mask, rule=rule)


def made_backward(given: tuple[str, ...] = ()) -> Iterator[str]:
    """Yields problems whose backward passes together launch every kernel, without types and head dimension."""
    others, masks = words_of(given)
    for rule in _RULES if "lambda" not in given else ("standard",):
        for mask in ([], ["documents=1"], ["right_padding"], *[["causal:bottom_right"]] * (rule == "standard")):
            yield f"shape=1x8x1024x1024 rule={rule} {others}" + f" mask={','.join([*mask, *masks])}" * bool(mask or masks)


def wanted_launches(
    target: Target, dtype: str, dim: int, wanted: str, pages: Iterable[int] = PAGES, given: tuple[str, ...] = (), gradients: bool = False
) -> list[Launch]:
    """Returns the launches of all calls of a type, a head dimension and one of WANTED; backward passes are those with and without
    gradients of statistics, bias, lambda and sinks."""

    def lines(problems: Iterable[str]) -> Iterator[Line]:
        return (Line(re.sub(r"(shape=\S+)", rf"\1x{dim}", f"dt={dtype} {problem}"), wanted) for problem in problems)

    with launches(target) as found:
        for line in lines(made(pages, given)):
            line.forward()
        for line in lines(made_backward(given) if gradients else ()):
            wants = (sorted({False, name in given}) for name in ("bias", "lambda", "sinks"))
            for upstream, *others in itertools.product((False, True) if wanted == "lse" else (True,), *wants):
                line.backward(*others, upstream=upstream)
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
        "kernels": entries,
    }
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
        them = wanted_launches(TARGETS[chip], kind, dim, wanted, given.pages, one, given.gradients)
        found |= dict.fromkeys((chip, one) for one in them)
    write(given.folder, found, given.jobs)


if __name__ == "__main__":
    main()
