"""Reports the compiled decode step for sm_90: instructions of its loop for each key, and bytes of the cache in flight.

Nothing is timed and no device is needed. The loop of the kernel is read in the disassembly, with the branch of tiles
with hidden keys. Calls have 8 sequences of 32768 keys, 32 query heads and 8 key heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import torch

from bench.gpu.bar import Bar
from isentrope.gpu import plan
from isentrope.gpu.launch_forward import merging
from src.gpu.compiling import TARGETS, Compiled, Loop, compiled, launches
from src.gpu.lines import Line

DTYPES = ("bf16", "f16")
PAGES = (0, 16, 64, 256)
_SHAPE = "8x32:8x1x32768"
# Calls with 32 query heads whose waves of programs are counted.
KEY_HEADS, SEQUENCES, KEYS = (8, 32, 16, 2), (1, 2, 4, 8, 16, 32, 64), (1024, 8192, 32768, 131072)
# Bytes that a multiprocessor of an H200 needs in flight: 4.3 TB/s times a latency of 1 us, for each of 132.
LATENT = 33_000
# Instructions of all warps for each key, without statistics and with all of them.
INSTRUCTIONS = {64: (12.0, 17.0), 128: (21.0, 25.0)}


class Decoding(NamedTuple):
    """A decode step's kernel: its tile, its compiled resources and its loop. page: keys of a page, 0: contiguous."""

    dtype: str
    dim: int
    results: str
    page: int
    keys: int
    warps: int
    occupancy: int
    chip: str
    kernel: Compiled
    loop: Loop

    @property
    def a_key(self) -> float:
        """Instructions of all warps for each key."""
        return self.loop.instructions * self.warps / self.keys

    @property
    def barriers(self) -> int:
        """Barriers of an iteration at which warps wait for each other."""
        return self.loop.kinds.get("BAR", 0) if self.warps > 1 else 0

    @property
    def in_flight(self) -> int:
        """Bytes of the cache that a multiprocessor's programs load while each computes with a tile."""
        tile = 2 * self.keys * self.dim * 2
        return self.programs * (self.kernel.shared // tile - 1) * tile

    @property
    def programs(self) -> int:
        return plan.programs_of(TARGETS[self.chip].chip, self.kernel.registers, self.kernel.shared, self.warps)

    @property
    def table_loads(self) -> int:
        """Loads of a warp in an iteration besides keys and values: those of the page table."""
        tile = 2 * self.keys * self.dim * 2 // (16 * 32 * self.warps)
        return self.loop.kinds.get("LDGSTS", 0) + self.loop.kinds.get("LDG", 0) - tile


def measured(dtype: str, dim: int, statistics: bool, page: int = 0, chip: str = "sm_90") -> Decoding:
    """Returns the planned decode kernel, compiled for a chip."""
    target, words = TARGETS[chip], f" mask=causal:bottom_right pages={page}" if page else ""
    with launches(target) as planned:
        Line(f"dt={dtype} shape={_SHAPE}x{dim}{words}", "all" if statistics else "lse").run()
    (forward,) = (forward for forward in planned if forward.name == "forward")
    shape, kernel = dict(forward.constants)["SHAPE"], compiled(forward, target)
    (loop,) = kernel.loops
    results = "all statistics" if statistics else "lse"
    warps = dict(forward.options)["num_warps"]
    return Decoding(dtype, dim, results, page, shape.KEYS, warps, shape.OCCUPANCY, chip, kernel, loop)


def bars(x: Decoding) -> Iterator[Bar]:
    about = f"{x.dtype}, d {x.dim}, {x.results}, {f'pages of {x.page}' if x.page else 'contiguous'}: "
    yield Bar(about + "instructions a key", x.a_key, INSTRUCTIONS[x.dim][x.results != "lse"])
    yield Bar(about + "barriers between warps in a round", x.barriers, 0)
    yield Bar(about + "bytes in flight on a multiprocessor", x.in_flight, 2 * LATENT, at_least=True)
    # One entry a key, which keys and values share: a load of each 32 keys of a warp.
    yield Bar(about + "loads of the page table in a round", x.table_loads, (x.page > 0) * -(-x.keys // (32 * x.warps)))
    yield Bar(about + "bytes spilled", x.kernel.spilled, 0)
    yield occupancy(x)


def occupancy(x: Decoding) -> Bar:
    about = f"{x.dtype}, d {x.dim}, {x.results}, {x.chip}: "
    return Bar(about + "programs on a multiprocessor that the plan counts on", x.occupancy, x.programs)


class Wave(NamedTuple):
    """A call's share of an H100's occupancy that its programs fill. splittable: it has fewer programs than the card
    runs at once, and enough keys to split them among more."""

    key_heads: int
    sequences: int
    keys: int
    filled: float
    splittable: bool

    @classmethod
    def of(cls, key_heads: int, sequences: int, keys: int) -> Wave:
        chip = TARGETS["sm_90"].chip
        tiles = plan.tiles("few rows", chip, torch.bfloat16, 128, results="lse")
        occupancy = plan.occupancy_of(tiles, chip, torch.bfloat16, 128, 128)
        blocks, wave = key_heads * sequences, occupancy * chip.units
        programs = blocks * plan.shares_of(chip, blocks, keys, tiles.keys, occupancy)
        # A share has four tiles at least, and a call 128 shares at most.
        most = blocks * min(128, max(1, keys // (4 * tiles.keys)))
        return cls(key_heads, sequences, keys, programs / (-(-programs // wave) * wave), blocks < wave and most >= wave)


def waves() -> list[Wave]:
    return [Wave.of(*call) for call in product(KEY_HEADS, SEQUENCES, KEYS)]


def bars_of_waves() -> Iterator[Bar]:
    """Yields limits of the fullness of waves, for calls whose keys can be split as far as the limit asks."""
    for x in waves():
        if x.splittable:
            about = f"{x.sequences} x {x.key_heads} x {x.keys} keys: share of the occupancy that programs fill"
            yield Bar(about, x.filled, 0.85, at_least=True)


def bars_of_merges() -> Iterator[Bar]:
    """Yields limits of the loads that a merge of 128 shares waits for, one after the other."""
    for dim, rounds in ((64, 1), (128, 2), (256, 4)):
        rows, shares = merging(16, dim)
        yield Bar(f"d {dim}: rows of a program that merges", rows, 1)
        yield Bar(f"d {dim}: rounds of loads of a merge of 128 shares", -(-128 // shares), rounds)


def table_of_waves() -> Iterator[str]:
    """Yields the table of docs/contributors/gpu-compiled.md."""
    filled = {x[:3]: x.filled for x in waves()}
    yield f"| key heads | keys | {' | '.join(map(str, SEQUENCES))} |"
    yield f"|---|---|{'---|' * len(SEQUENCES)}"
    for key_heads, keys in product(KEY_HEADS, KEYS):
        cells = (f"{100 * filled[key_heads, sequences, keys]:.0f} %" for sequences in SEQUENCES)
        yield f"| {key_heads} | {keys} | {' | '.join(cells)} |"


def table(steps: list[Decoding]) -> Iterator[str]:
    yield "| type | d | results | page | keys, warps | registers | shared | instructions a key | barriers | in flight | programs |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for x in steps:
        yield (
            f"| {x.dtype} | {x.dim} | {x.results} | {x.page} | {x.keys}, {x.warps} | {x.kernel.registers} | {x.kernel.shared} | "
            f"{x.a_key:.1f} | {x.barriers} | {x.in_flight} | {x.programs} |"
        )
