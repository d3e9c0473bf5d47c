"""How a call is cut: tile sizes, warps and stages by chip, type and head size, and into how many shares keys go."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch

from isentrope.gpu.tile import INTERPRETED


class Tiles(NamedTuple):
    """ROWS queries by KEYS keys, worked on by `warps` warps, with loads `stages` tiles ahead."""

    rows: int
    keys: int
    warps: int
    stages: int


def padded(columns: int) -> int:
    """Head dimensions as tensor cores take them: a power of two, 16 at least."""
    return max(16, 1 << (columns - 1).bit_length())


class Chip(NamedTuple):
    """`kind`: "sm80" (Ampere, Ada), "sm90", "sm100", "gfx" (CDNA), "xpu" or "interpreter"; `units` work at once."""

    kind: str
    units: int

    @property
    def precision(self) -> str:
        """Of float32 products: three tensor-core products of its parts keep its digits, where there are any."""
        return "tf32x3" if self.kind.startswith("sm") else "ieee"


@lru_cache
def chip_of(device: Any) -> Chip:
    if INTERPRETED.value:
        return Chip("interpreter", 4)
    properties = torch.get_device_module(device).get_device_properties(device)
    if device.type == "xpu":
        return Chip("xpu", properties.gpu_subslice_count)
    if torch.version.hip:
        return Chip("gfx", properties.multi_processor_count)
    if properties.major < 8:
        raise ValueError(
            f"[attention] q must lie on a device of compute capability 8.0 or later; got {properties.major}."
            f"{properties.minor} ({properties.name}): move the call to the CPU"
        )
    kinds = {9: "sm90", 10: "sm100"}
    return Chip(kinds.get(properties.major, "sm80"), properties.multi_processor_count)


# No device was at hand to time these. They follow published kernels' tiles, cut down until nothing spills and
# everything fits the chip, all statistics included (the table in docs/gpu.md): {(kind, halves): {columns: Tiles}}.
_FORWARD = {
    ("sm80", True): {32: Tiles(128, 64, 4, 3), 64: Tiles(128, 64, 8, 3), 128: Tiles(128, 32, 8, 3), 256: Tiles(64, 32, 8, 2)},
    ("sm90", True): {64: Tiles(128, 128, 8, 3), 128: Tiles(128, 64, 8, 2), 256: Tiles(64, 32, 8, 2)},
    ("gfx", True): {64: Tiles(128, 64, 4, 1), 128: Tiles(128, 32, 8, 1), 256: Tiles(64, 32, 8, 1)},
    ("sm80", False): {64: Tiles(64, 32, 8, 2), 128: Tiles(64, 32, 8, 2), 256: Tiles(32, 16, 8, 1)},
    ("gfx", False): {64: Tiles(64, 32, 4, 1), 128: Tiles(64, 32, 8, 1), 256: Tiles(32, 16, 8, 1)},
}
_BACKWARD = {
    ("sm80", True): {64: Tiles(64, 64, 8, 2), 128: Tiles(64, 32, 8, 2), 256: Tiles(32, 32, 8, 1)},
    ("sm90", True): {64: Tiles(64, 64, 4, 2), 128: Tiles(64, 64, 8, 2), 256: Tiles(32, 32, 8, 1)},
    ("gfx", True): {64: Tiles(64, 64, 4, 1), 128: Tiles(64, 32, 8, 1), 256: Tiles(32, 32, 8, 1)},
    ("sm80", False): {64: Tiles(32, 32, 8, 1), 128: Tiles(32, 16, 8, 1), 256: Tiles(16, 16, 8, 1)},
    ("gfx", False): {64: Tiles(32, 32, 4, 1), 128: Tiles(32, 16, 8, 1), 256: Tiles(16, 16, 8, 1)},
}
# Chips that take another's numbers.
_LIKE = {("sm100", True): ("sm90", True), ("sm100", False): ("sm80", False), ("sm90", False): ("sm80", False),
         ("xpu", True): ("gfx", True), ("xpu", False): ("gfx", False)}  # fmt: skip
_INTERPRETED = Tiles(32, 32, 4, 1)


def _tiles(table: dict, chip: Chip, dtype: torch.dtype, columns: int) -> Tiles:
    if chip.kind == "interpreter":
        return _INTERPRETED
    key = chip.kind, dtype != torch.float32
    by_columns = table[_LIKE.get(key, key)]
    return by_columns[min(width for width in by_columns if width >= columns)]


def forward_tiles(chip: Chip, dtype: torch.dtype, columns: int) -> Tiles:
    """Of a strip of many rows. columns: the larger of both padded head dimensions."""
    return _tiles(_FORWARD, chip, dtype, columns)


def backward_tiles(chip: Chip, dtype: torch.dtype, columns: int) -> Tiles:
    return _tiles(_BACKWARD, chip, dtype, columns)


def few_rows_tiles(chip: Chip, dtype: torch.dtype, columns: int) -> Tiles:
    """Of a decode step: as few rows as tensor cores take, so what matters is to keep many keys on their way."""
    if chip.kind == "interpreter":
        return Tiles(16, 16, 4, 1)
    wide = columns * (1 if dtype != torch.float32 else 2) > 128
    stages = 1 if chip.kind in ("gfx", "xpu") else 2
    return Tiles(16, 32 if wide else 64, 4, stages)


def shares_of(chip: Chip, strips: int, keys: int, tile: int) -> int:
    """Into how many shares the keys go, so that every unit of the chip has a strip; 1: not split."""
    # A share of fewer than 4 tiles would be read faster than it is merged.
    most = max(1, keys // (4 * tile))
    return max(1, min(most, -(-2 * chip.units // max(strips, 1)), 128))
