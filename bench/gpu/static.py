"""Compares compiled kernels for sm_90 with a plain fused kernel and FlexAttention's: a table, JSON, and limits.

Nothing is timed and no device is needed. Kernels of one call each (long causal rows) are compiled, and their loops over
tiles without hidden keys are read in the disassembly. Instructions are those of all warps for each score, or for 1000
multiplications and additions. Tiles are unmeasured ones, as large as those of the compared kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import triton
from triton.compiler import ASTSource

from bench.gpu import peers
from bench.gpu.bar import Measured
from isentrope._core.library import BITS
from isentrope.gpu import plan, tile_table
from src.gpu.compiling import TARGETS, Compiled, Loop, compiled, launches, of_cubin
from src.gpu.lines import Line

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
DIMS = (64, 128)
LSE = BITS["lse"]
# Tiles of the plain kernel that are fastest in its publication: 8 warps, 128 rows.
PLAIN = {64: [(128, 64, 8, 3), (128, 128, 8, 3)], 128: [(128, 64, 8, 3), (128, 128, 8, 2)]}


def unmasked(loops: tuple[Loop, ...]) -> list[Loop]:
    """Returns the loop without masks of each kind, by work: the one with the fewest instructions."""
    works = sorted({loop.operations for loop in loops})
    return [min((loop for loop in loops if loop.operations == work), key=lambda loop: loop.instructions) for work in works]


def isentrope_kernels(dtype: str, dim: int) -> Iterator[Measured]:
    """Yields the kernels of both passes without statistics."""
    with mock.patch.object(plan, "table_of", lambda *_: tile_table.NONE):
        for backward in (False, True):
            yield from launched(dtype, dim, LSE, backward)


def launched(dtype: str, dim: int, wanted: int, backward: bool) -> Iterator[Measured]:
    """Yields the tile kernels of a call, or of the backward pass of a loss that reads its statistics."""
    line = Line(f"dt={dtype} shape=4x{peers.HEADS}x{peers.LENGTH}x{peers.LENGTH}x{dim} mask=causal:bottom_right{' bwd=1' * backward}")
    line.wanted = wanted
    with launches(TARGETS["sm_90"]) as planned:
        line.run()
    for planned_launch in planned:
        if planned_launch.name in ("forward", "query_gradient", "key_gradient"):
            tile, kernel = dict(planned_launch.constants)["SHAPE"], compiled(planned_launch, TARGETS["sm_90"])
            (loop,) = unmasked(kernel.loops)
            name, options = planned_launch.name.replace("_", " "), dict(planned_launch.options)
            yield Measured(name, dtype, dim, tile.ROWS, tile.KEYS, options["num_warps"], kernel, loop)


def _of_source(source: peers.Source) -> Compiled:
    attributes: dict[tuple[int, ...], list] = {(index,): [["tt.divisibility", 16]] for index in source.divisible}
    program = ASTSource(source.kernel, source.signature, constexprs=source.constants, attrs=attributes)
    options = {**source.options, "enable_fp_fusion": True}
    return of_cubin(triton.compile(program, target=TARGETS["sm_90"].gpu, options=options))


def plain(dtype: str, dim: int) -> Iterator[Measured]:
    for rows, keys, warps, stages in PLAIN[dim]:
        kernel = _of_source(peers.plain(DTYPES[dtype], dim, rows, keys, warps, stages))
        yield Measured("plain forward", dtype, dim, rows, keys, warps, kernel, unmasked(kernel.loops)[0])


def flex(dtype: str, dim: int) -> Iterator[Measured]:
    source = peers.flex_forward(DTYPES[dtype], dim)
    kernel, tile, warps = _of_source(source), source.tile, source.options["num_warps"]
    yield Measured("FlexAttention forward", dtype, dim, *tile["forward"], warps, kernel, unmasked(kernel.loops)[0])
    source = peers.flex_backward(DTYPES[dtype], dim)
    kernel, tile, warps = _of_source(source), source.tile, source.options["num_warps"]
    for name, loop in zip(("query gradient", "key gradient"), unmasked(kernel.loops), strict=True):
        yield Measured(f"FlexAttention {name}", dtype, dim, *tile[name], warps, kernel, loop)


def measured(dtype: str, dim: int) -> list[Measured]:
    return [*isentrope_kernels(dtype, dim), *plain(dtype, dim), *flex(dtype, dim)]


def table(kernels: list[Measured]) -> Iterator[str]:
    yield (
        "| type | d | kernel | queries x keys | registers | spilled | shared | instructions a score | a 1000 flop | products "
        "| fences | programs |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for x in kernels:
        products = ", ".join(f"{count} n{n}" for (_, n, _), count in sorted(x.loop.products.items()))
        yield (
            f"| {x.dtype} | {x.dim} | {x.name} | {x.rows} x {x.keys}, {x.warps} warps | {x.kernel.registers} | "
            f"{x.kernel.spilled} | {x.kernel.shared} | {x.a_score:.3f} | {1000 * x.a_flop:.2f} | {products} | "
            f"{x.loop.fences} | {x.programs} |"
        )


def as_json(kernels: list[Measured]) -> list[dict[str, Any]]:
    return [
        {**x._asdict(), "kernel": x.kernel._replace(loops=())._asdict(), "a_score": x.a_score, "a_flop": x.a_flop,
         "loop": {**x.loop._asdict(), "products": {"x".join(map(str, k)): n for k, n in x.loop.products.items()}},
         "programs": x.programs}
        for x in kernels
    ]  # fmt: skip
