"""Calls to time and problems to check on a GPU: those of make bench-gpu, and those of the carried folder.

Kernels of the latter are compiled before it is carried. It takes its work in this order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bench.work import Work, square

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
STEPS = [  # decode steps: sequences, keys, key heads of 32 query heads
    (1, 1024, 8), (1, 8192, 8), (1, 131072, 8), (8, 1024, 8), (8, 8192, 8), (8, 32768, 8), (8, 131072, 8), (64, 1024, 8), (64, 8192, 8),
    (8, 8192, 32), (8, 32768, 16), (8, 131072, 2),
]  # fmt: skip
TOKENS = 16384  # tokens of a call: longer sequences are fewer
COMMON = [  # calls that models make, in every type, with and without gradients
    f"dt={dtype} shape=1x2:1x257x300x{dim} mask=causal:bottom_right{bwd}"
    for bwd in (" bwd=1", "") for dtype in ("bf16", "f16", "f32") for dim in (64, 128)
]  # fmt: skip
SEED, GENERATED, SIZE = 40, 280, 200_000  # seed, number and size of the generated problems, which are checked last
SHAPES = [
    square("forward", 4, 32, 4096, 64, "bf16", True), square("forward", 4, 16, 4096, 128, "bf16", True),
    square("gradient", 4, 32, 4096, 64, "bf16", True), square("gradient", 4, 16, 4096, 128, "bf16", True),
    *(square(kind, 4, 2048 // dim, 4096, dim, "bf16", True) for kind in ("statistics", "entropy gradient") for dim in (64, 128)),
    square("entropy", 2, 16, 8192, 128, "bf16", True), Work("decode", 8, 32, 1, 32768, 128, "bf16", False, 8),
    square("forward", 1, 16, 16384, 128, "bf16", True), square("forward", 4, 16, 4096, 128, "bf16", False),
    square("forward", 4, 16, 4096, 128, "f16", True), square("gradient", 4, 16, 4096, 128, "f16", True),
    *(square("double gradient", 4, 2048 // dim, 4096, dim, "bf16", True) for dim in (64, 128)),
    square("gradient", 1, 16, 16384, 128, "bf16", True), Work("decode", 1, 32, 1, 131072, 128, "bf16", False, 8),
]  # fmt: skip
CALLS = [  # calls whose time is spent on the host
    square(kind, 1, 8, n, 64, "bf16", True) for n in (1, 128, 1024) for kind in ("forward", "gradient", "entropy gradient")
]  # fmt: skip


def decode_step(batch: int, keys: int, key_heads: int, page: int = 0) -> Work:
    return Work("decode", batch, 32, 1, keys, 128, "bf16", False, key_heads, page)


PAGED = [decode_step(8, 32768, 8, page) for page in (16, 64, 256)]
DECODED = [
    decode_step(8, 32768, 8), *PAGED, decode_step(1, 8192, 8), decode_step(8, 8192, 8), decode_step(64, 8192, 8),
    decode_step(1, 1024, 8), decode_step(1, 131072, 8), decode_step(64, 1024, 8), decode_step(8, 8192, 32),
    decode_step(8, 32768, 2),
]  # fmt: skip

TINY_LINES = [f"dt={dtype} shape=1x2:1x17x33x16 mask=causal:bottom_right bwd=1" for dtype in ("bf16", "f32")]
TINY_SHAPES = [
    *(square(kind, 1, 2, 20, 16, "f32", True) for kind in ("forward", "gradient", "entropy", "statistics", "entropy gradient", "double gradient")),
    Work("decode", 1, 2, 1, 20, 16, "f32", False, 1), Work("decode", 2, 2, 1, 32, 16, "f32", False, 1, 16),
]


def problem_lines() -> list[str]:
    """Returns the lines to check first: former failures on a device, lines that cover every pair of features, then
    COMMON."""
    from isentrope.gpu.pairwise import problem_lines as covering

    return [*covering(), *COMMON]


def all_work() -> Iterator[Work]:
    for dtype in ("bf16", "f16"):
        for dim in (64, 128):
            for n in LENGTHS:
                batch, heads = max(1, TOKENS // n), 2048 // dim
                for causal in (False, True):
                    for kind in ("forward", "gradient"):
                        yield square(kind, batch, heads, n, dim, dtype, causal)
            yield square("entropy", 2, 2048 // dim, 8192, dim, dtype, True)
            yield square("statistics", 4, 2048 // dim, 4096, dim, dtype, True)
            yield square("entropy gradient", 4, 2048 // dim, 4096, dim, dtype, True)
        for batch, keys, key_heads in STEPS:
            yield Work("decode", batch, 32, 1, keys, 128, dtype, False, key_heads)
        yield from (replace(work, dtype=dtype) for work in PAGED)
