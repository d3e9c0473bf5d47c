"""Tiles that `isentrope tune` tries for each kernel, and the keys of the table that it fills."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from isentrope.gpu import plan, tile_table
from isentrope.gpu.tile_table import COLUMNS, DTYPES, KERNELS, RESULTS, Key, Tiles

_HALVES = {
    "forward": [
        Tiles(128, 64, 8, 3), Tiles(128, 64, 4, 3), Tiles(64, 64, 4, 3), Tiles(64, 64, 4, 2), Tiles(128, 128, 8, 2),
        Tiles(64, 128, 4, 2), Tiles(64, 32, 4, 3), Tiles(128, 64, 8, 3, 128), Tiles(128, 128, 8, 2, descriptors=True),
        Tiles(64, 64, 4, 3, descriptors=True),
    ],
    "query gradient": [
        Tiles(128, 64, 8, 3), Tiles(64, 64, 4, 3), Tiles(64, 64, 4, 2), Tiles(64, 32, 4, 3), Tiles(128, 32, 8, 3),
        Tiles(64, 128, 4, 2), Tiles(128, 64, 8, 3, descriptors=True), Tiles(64, 64, 4, 3, descriptors=True),
    ],
    "key gradient": [
        Tiles(32, 64, 4, 3), Tiles(32, 64, 4, 2), Tiles(64, 64, 4, 2), Tiles(32, 128, 8, 2), Tiles(32, 128, 8, 3),
        Tiles(64, 128, 8, 2), Tiles(32, 128, 8, 2, 0, True),
    ],
    "few rows": [
        Tiles(16, 32, 1, 3, occupancy=None), Tiles(16, 32, 1, 3, occupancy=12), Tiles(16, 32, 1, 3, occupancy=3),
        Tiles(16, 32, 1, 4, occupancy=None), Tiles(16, 32, 1, 2, occupancy=None), Tiles(16, 64, 1, 2, occupancy=None),
        Tiles(16, 64, 1, 3, occupancy=None), Tiles(16, 64, 2, 3, occupancy=None), Tiles(16, 128, 4, 3, occupancy=None),
        Tiles(16, 128, 8, 3, occupancy=None), Tiles(16, 32, 1, 3, occupancy=None, descriptors=True),
        Tiles(16, 64, 1, 2, occupancy=None, descriptors=True), Tiles(16, 64, 1, 3, occupancy=None, descriptors=True),
    ],
    "masked forward": [Tiles(128, 32, 8, 1), Tiles(64, 64, 8, 1), Tiles(64, 32, 4, 1), Tiles(64, 64, 4, 1), Tiles(32, 32, 4, 1)],
    "masked query gradient": [Tiles(128, 16, 8, 1), Tiles(64, 32, 8, 1), Tiles(64, 32, 4, 1), Tiles(32, 32, 4, 1)],
    "masked key gradient": [Tiles(32, 32, 8, 1), Tiles(16, 64, 8, 1), Tiles(32, 64, 8, 1), Tiles(32, 32, 4, 1)],
}  # fmt: skip
# float32 products take three times the registers.
_FLOATS = [Tiles(32, 32, 8, 1), Tiles(32, 32, 4, 2), Tiles(16, 32, 4, 2), Tiles(64, 32, 8, 1), Tiles(32, 64, 8, 1)]
_DESCRIBED_FLOATS = [*_FLOATS, Tiles(16, 32, 4, 2, descriptors=True)]
_OWN_FLOATS = {
    "forward": _DESCRIBED_FLOATS, "query gradient": _DESCRIBED_FLOATS,
    "few rows": [
        Tiles(16, 32, 4, 2), Tiles(16, 64, 8, 2), Tiles(16, 128, 8, 2), Tiles(16, 32, 2, 2),
        Tiles(16, 32, 4, 2, descriptors=True), Tiles(16, 32, 8, 2, descriptors=True),
    ],
}  # fmt: skip


def keys(types: Iterable[str] = ("bf16",), dims: Iterable[int] = (64, 128), masked: bool = False) -> list[Key]:
    """Keys of all kernels, in the order that they are tuned; masked: also with a boolean mask."""
    kernels = [*KERNELS, *(f"masked {kernel}" for kernel in KERNELS if masked and kernel != "few rows")]
    return [
        Key(*(kernel, *others, results))  # type: ignore[arg-type]
        for *others, results in product(types, dims, RESULTS)
        for kernel in (kernels if results != "moments" else ["query gradient"])
    ]


def all_keys() -> list[Key]:
    """Every key that a table may have."""
    return keys(DTYPES, COLUMNS, masked=True)


def candidates(key: Key, chip: plan.Chip) -> list[Tiles]:
    """Tiles to try: the plan's and the package's first, then others without repetition. Some may not compile."""
    if key.dtype == "f32":
        others = _OWN_FLOATS.get(key.kernel, _FLOATS)
    else:
        others = _HALVES[key.kernel]
    planned = plan.unmeasured(key, chip)
    measured = tile_table.shipped(chip.kind).tiles.get(key, planned)
    return list(dict.fromkeys([planned, measured, *others]))
