"""Lists what makes products of compiled kernels wrong with some Triton: operands laid out wrongly by the Triton that this process imports,
and joins of tensors, which mislead Triton 3.6 and 3.7.

    python tests/python/gpu/layouts.py --chips sm_90 [--worst] [--compile]     # exit status 1 if there is a fault
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import triton

sys.path.append(str(Path(__file__).parents[3]))

from variants import DOCUMENTS, DROPOUT, MASKED, line

from src.gpu.compiling import TARGETS, Launch, binary, launches, stages_until, ttgir, wrong_products
from src.gpu.lines import Line

# Kernels without products of tiles.
WITHOUT = ("rows", "merge", "gradient_rows", "spans", "sink_gradient", "value_norms")
# Chips whose products, or those of their smallest tiles, are mma of version 2; sm_86 and sm_89 have the TTGIR of sm_80 (a
# test). AMD's products have other layouts, so that only joins are looked for.
CHIPS = ("sm_80", "sm_90", "sm_100", "sm_120", "gfx942")
TYPES = ("f32", "bf16", "f16")
WORST = f"stats=lse {MASKED} {DROPOUT}"


def worst() -> list[str]:
    """Returns calls of a dozen kernels that were wrong: boolean mask and dropout, in the smallest tiles."""
    of_gradients = (("f32", 64), ("f32", 128), ("bf16", 64), ("bf16", 160), ("f16", 160))
    return [line(dtype, 160, WORST) for dtype in TYPES[1:]] + [line(*one, f"{WORST} bwd=1") for one in of_gradients]


def every() -> list[str]:
    """Returns every type and tile width with each operand-affecting option: masks, dropout, statistics, dilation.
    Pages, documents with a boolean mask alone, and values of another dimension have calls of their own."""
    lines = []
    for dtype, dim, *words in itertools.product(TYPES, (37, 64, 128, 160), ("", MASKED), ("", DROPOUT), ("", "stats=lse")):
        text = " ".join(word for word in words if word)
        lines += [line(dtype, dim, text), line(dtype, dim, text, few=True), line(dtype, dim, f"{text} bwd=1".strip())]
    lines += [line(dtype, 64, f"{WORST} bwd=1", mask=",dilation=3") for dtype in TYPES]
    return [
        *lines, line("bf16", 128, "pages=16", few=True), line("bf16", 64, DROPOUT, mask=DOCUMENTS),
        line("f32", 64, f"{DROPOUT} bwd=1", mask=DOCUMENTS), *(line("bf16", "192:128", bwd) for bwd in ("", "bwd=1")),
    ]  # fmt: skip


def kernels(lines: list[str], chip: str, repairs: bool = True) -> Iterator[tuple[Launch, str]]:
    """Yields the distinct kernels with products on a chip, each with the first call that launches it."""
    seen = set()
    for text in lines:
        with launches(TARGETS[chip]) as recorded:
            Line(text).run()
        for one in recorded:
            if one not in seen and one.name not in WITHOUT and (repairs or not one.name.endswith("_repair")):
                seen.add(one)
                yield one, f"{chip} {text} {one.name}"


def faults(code: str) -> list[str]:
    """Returns wrong products in a kernel's TTGIR, and joins, which made them wrong with some versions of Triton."""
    return [str(product) for product in wrong_products(code)] + ["tt.join"] * ("tt.join" in code)


def wrong(lines: list[str], chip: str, repairs: bool = True) -> tuple[list[str], int]:
    """Returns faults of kernels on a chip, each with its call, and the number of kernels."""

    def scanned(item: tuple[Launch, str]) -> list[str]:
        target = TARGETS[chip]
        # Joins are in TTIR already, in a third of the time.
        code = ttgir(item[0], target) if target.gpu.backend == "cuda" else str(stages_until("ttir", item[0], target))
        return [f"{item[1]}: {fault}" for fault in faults(code)]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        scans = list(pool.map(scanned, kernels(lines, chip, repairs)))
    return [fault for found in scans for fault in found], len(scans)


def compile_passes(chip: str) -> list[str]:
    """Compiles the kernels of a forward and a backward pass with statistics to machine code, and returns their names."""
    compiled = list(kernels([line("bf16", 64), line("bf16", 64, "bwd=1")], chip, repairs=False))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda item: binary(item[0], TARGETS[chip]), compiled))
    return [one.name for one, _ in compiled]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chips", nargs="+", choices=TARGETS, default=list(CHIPS))
    parser.add_argument("--worst", action="store_true", help="the calls of a dozen kernels instead of all")
    parser.add_argument("--compile", action="store_true", help="also compile a forward and a backward pass for sm_90")
    arguments = parser.parse_args()
    faults, count = [], 0
    for chip in arguments.chips:
        found, scanned = wrong(worst(), chip, repairs=False) if arguments.worst else wrong(every(), chip)
        faults += found
        count += scanned
    if arguments.compile:
        print("compiled:", *compile_passes("sm_90"))
    print("\n".join([*faults, f"Triton {triton.__version__}: {len(faults)} faults in {count} kernels"]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
