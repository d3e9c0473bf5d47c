"""What the carried folder checks and times, in this order. Kernels of all of it are compiled before the folder is carried."""

from __future__ import annotations

from work import Work, square

# Problems that were wrong on the first device, and pass in the interpreter.
WRONG_FIRST = [
    "shape=1x1x71x37x37 mask=left_padding,right_padding bias=1 admitted=1 sink=1 dropout=0.25 dropout_seed=3247048918431359 bwd=1 seed=16",
    "shape=1x1x71x37x37 admitted=1 dropout=0.25 dropout_seed=3247048918431359 bwd=1 seed=16",
    "dt=f16 shape=1x12:3x9x9x24:160 mask=causal:bottom_right,dilation=7 cap=0.5 admitted=1 dropout=0.1 "
    "dropout_seed=1816752153120331 bwd=1 scale=1e-06 seed=164",
    "shape=2x8:1x3x1023x2 rule=logn(train_len=32) admitted=1 dropout=0.25 dropout_seed=4777061554320694 bwd=1 scale=0.001 seed=180",
    "dt=bf16 shape=2x1x3x256x2 mask=causal:bottom_right special=1 bwd=1 seed=15",
    "dt=f16 shape=2x1x3x256x2 mask=causal:bottom_right special=1 bwd=1 seed=15",
    "dt=bf16 shape=2x1x3x256x2 special=1 seed=15",
]
# What models call, in every type, gradients among them.
COMMON = [
    f"dt={dtype} shape=1x2:1x257x300x{dim} mask=causal:bottom_right{bwd}"
    for bwd in (" bwd=1", "") for dtype in ("bf16", "f16", "f32") for dim in (64, 128)
]  # fmt: skip
# Seed, number and size of the generated problems, which are checked last.
SEED, GENERATED, SIZE = 40, 280, 200_000
SHAPES = [
    square("forward", 4, 32, 4096, 64, "bf16", True), square("forward", 4, 16, 4096, 128, "bf16", True),
    square("gradient", 4, 32, 4096, 64, "bf16", True), square("gradient", 4, 16, 4096, 128, "bf16", True),
    square("entropy", 2, 16, 8192, 128, "bf16", True), Work("decode", 8, 32, 1, 32768, 128, "bf16", False, 8),
    square("forward", 1, 16, 16384, 128, "bf16", True), square("forward", 4, 16, 4096, 128, "bf16", False),
    square("forward", 4, 16, 4096, 128, "f16", True), square("gradient", 4, 16, 4096, 128, "f16", True),
    square("gradient", 1, 16, 16384, 128, "bf16", True), Work("decode", 1, 32, 1, 131072, 128, "bf16", False, 8),
]  # fmt: skip
# Calls whose time is the host's.
CALLS = [square(kind, 1, 8, n, 64, "bf16", True) for n in (1, 128, 1024) for kind in ("forward", "gradient")]
DECODED = [
    Work("decode", batch, 32, 1, keys, 128, "bf16", False, 8) for batch, keys in ((8, 32768), (1, 8192), (8, 8192), (64, 8192))
]  # fmt: skip

TINY_LINES = [f"dt={dtype} shape=1x2:1x17x33x16 mask=causal:bottom_right bwd=1" for dtype in ("bf16", "f32")]
TINY_SHAPES = [
    *(square(kind, 1, 2, 20, 16, "f32", True) for kind in ("forward", "gradient", "entropy")),
    Work("decode", 1, 2, 1, 20, 16, "f32", False, 1),
]


def problem_lines() -> list[str]:
    """Lines that are checked first. A set that covers every pair of what a call may have belongs between the two lists."""
    return [*WRONG_FIRST, *COMMON]
