"""Table of docs/contributors/gpu-compiled.md."""

from collections.abc import Iterator

from variants import Variant, line

from src.gpu.compiling import TARGETS, Compiled, Launch

CHIPS = ("sm_80", "sm_90", "sm_100", "gfx942")  # sm_86, 89 and 120 use the tiles of sm_80
CALLS = [
    (chip, dim, backward)
    for chip in CHIPS for dim in ((64, 128) if chip == "sm_90" else (128,)) for backward in (False, True)
]  # fmt: skip
KERNELS = ("forward", "query_gradient", "key_gradient")


def rows(chip: str, dim: int, backward: bool) -> Iterator[str]:
    calls = (Variant(line("bf16", dim, f"{statistics}{' bwd=1' * backward}")) for statistics in ("", "stats=lse"))
    full, bare = ({name(one): cells(one, kernel) for one, kernel in call.on(TARGETS[chip]) if one.name in KERNELS} for call in calls)
    for kernel in full:
        shown = (a if a == b else f"{a}, {b}" for a, b in zip(full[kernel], bare.get(kernel, full[kernel])))
        yield f"| {chip} | {dim} | {kernel} | {' | '.join(shown)} |"
    for kernel in [kernel for kernel in bare if kernel not in full]:
        yield f"| {chip} | {dim} | {kernel}, with none | {' | '.join(bare[kernel])} |"


def name(launch: Launch) -> str:
    constants, shown = dict(launch.constants), launch.name.replace("_", " ")
    apart = "" if constants.get("DK", True) and constants.get("DV", True) else "dk" if constants["DK"] else "dv"
    return f"{shown}: {apart}" if apart else shown


def cells(launch: Launch, kernel: Compiled) -> list[str]:
    shape, options = dict(launch.constants)["SHAPE"], dict(launch.options)
    products = " ".join(f"{count} {name}" for name, count in kernel.products.items())
    numbers = (kernel.registers, kernel.spilled, kernel.shared, kernel.instructions)
    return [f"{shape.ROWS} x {shape.KEYS}, {options['num_warps']} warps", *map(str, numbers), products]


def lines() -> Iterator[str]:
    yield "| chip | d | kernel | queries x keys | registers | spilled | shared | instructions | products |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for chip, dim, backward in CALLS:
        yield from rows(chip, dim, backward)
