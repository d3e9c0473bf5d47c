"""Plans a call: tile sizes, warps and stages by chip, type and head size. The library has all other decisions, for C++ too.

Tiles come from the user's table, else from the package's table of the chip (`tile_table`), else from the tables below.
"""

from __future__ import annotations

import json
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from isentrope._core.library import OPS
from isentrope.gpu.kernels.tile import INTERPRETED
from isentrope.gpu.tile_table import Key, Tiles, table_of


def padded(columns: int) -> int:
    """Returns the head dimension padded for tensor cores: a power of two, at least 16."""
    return max(16, 1 << (columns - 1).bit_length())


class Chip(NamedTuple):
    """A kind of device. kind: "sm80" (Ampere, Ada, and Blackwell workstations), "sm90", "sm100", "gfx" (CDNA), "rdna",
    "xpu" or "interpreter". units: multiprocessors. card: its name, empty for chips that are only compiled for.
    shared: bytes of shared memory of a multiprocessor, for NVIDIA; all later than 7.5 have the default at least."""

    kind: str
    units: int
    card: str = ""
    shared: int = 100 << 10


def nvidia(major: int, minor: int, units: int, card: str = "") -> Chip:
    """Returns the chip of a compute capability. Its shared memory stands in the CUDA programming guide."""
    kind = {9: "sm90", 10: "sm100"}.get(major, "sm80")
    if kind != "sm80":
        return Chip(kind, units, card, 228 << 10)
    return Chip(kind, units, card, 164 << 10) if (major, minor) in ((8, 0), (8, 7)) else Chip(kind, units, card)


@lru_cache
def chip_of(device: Any) -> Chip:
    if INTERPRETED.value:
        return Chip("interpreter", 4)
    properties = torch.get_device_module(device).get_device_properties(device)
    if device.type == "xpu":
        return Chip("xpu", properties.gpu_subslice_count, properties.name)
    if torch.version.hip:
        return Chip("rdna" if properties.warp_size == 32 else "gfx", properties.multi_processor_count, properties.name)
    if properties.major < 8:
        raise ValueError(
            f"[attention] q must be on a device of compute capability 8.0 or later; got {properties.major}."
            f"{properties.minor} ({properties.name}): move the call to the CPU"
        )
    return nvidia(properties.major, properties.minor, properties.multi_processor_count, properties.name)


DTYPES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}
# Not measured: for chips, types and dimensions that no table has. They follow published kernels' tiles, cut down until
# nothing spills with all statistics, in bf16 at 64 and 128 (docs/contributors/gpu.md); the others are smaller still. By
# kernel, for the widest head dimension of each entry; "masked" with a boolean mask or a bias, whose addresses take
# registers of their own.
_HALVES = {
    "forward": {64: Tiles(128, 32, 8, 2), 128: Tiles(128, 32, 8, 2), 256: Tiles(64, 16, 8, 2)},
    "masked forward": {64: Tiles(64, 64, 8, 1), 128: Tiles(64, 32, 8, 1), 256: Tiles(64, 16, 8, 1)},
    "few rows": {64: Tiles(16, 64, 4, 2), 128: Tiles(16, 64, 8, 2), 256: Tiles(16, 32, 8, 2)},
    "query gradient": {64: Tiles(64, 64, 8, 2), 128: Tiles(64, 16, 8, 2), 256: Tiles(32, 32, 8, 1)},
    "masked query gradient": {64: Tiles(64, 32, 8, 1), 128: Tiles(64, 16, 8, 1), 256: Tiles(16, 16, 8, 1)},
    "key gradient": {64: Tiles(16, 128, 8, 2), 128: Tiles(16, 64, 8, 3), 256: Tiles(16, 16, 8, 1)},
    "masked key gradient": {64: Tiles(16, 64, 8, 1), 128: Tiles(16, 32, 8, 1), 256: Tiles(16, 16, 8, 2)},
    # The tangent pass and the second-order pass.
    "tangents by query": {64: Tiles(16, 32, 8, 1), 128: Tiles(16, 32, 8, 1), 256: Tiles(16, 16, 8, 1)},
    "tangents by key": {64: Tiles(32, 32, 8, 1), 128: Tiles(32, 32, 8, 1), 256: Tiles(16, 16, 8, 1)},
    "masked tangents by query": {64: Tiles(16, 32, 8, 1), 128: Tiles(16, 32, 8, 1), 256: Tiles(16, 16, 8, 1)},
    "masked tangents by key": {64: Tiles(16, 32, 8, 1), 128: Tiles(16, 32, 8, 1), 256: Tiles(16, 16, 8, 1)},
}
_FLOATS = {
    "forward": {64: Tiles(32, 32, 8, 2), 128: Tiles(16, 32, 8, 1), 256: Tiles(16, 16, 8, 2)},
    "masked forward": {64: Tiles(16, 32, 8, 1), 128: Tiles(16, 32, 8, 1), 256: Tiles(16, 16, 8, 1)},
    "few rows": {64: Tiles(16, 32, 4, 2), 128: Tiles(16, 32, 8, 2), 256: Tiles(16, 16, 8, 1, 128)},
    # Without a limit the compiler reduces registers until 16 bytes spill.
    "query gradient": {64: Tiles(16, 32, 8, 1), 128: Tiles(16, 32, 8, 1), 256: Tiles(16, 16, 8, 1, 128)},
    "masked query gradient": dict.fromkeys((64, 128, 256), Tiles(16, 16, 8, 1)),
    "key gradient": {64: Tiles(16, 16, 8, 1), 128: Tiles(16, 16, 8, 1, 128), 256: Tiles(16, 16, 8, 1, 168)},
    "masked key gradient": dict.fromkeys((64, 128, 256), Tiles(16, 16, 8, 1)),
    **{f"{masked}tangents by {side}": {256: Tiles(16, 16, 8, 1)} for masked in ("", "masked ") for side in ("query", "key")},
}
# Tiles of decode steps, in 16-bit types: with one warp a row's keys are in one warp, and no barrier is needed. Tiles of
# keys and of values have two buffers each.
_ONE_WARP = {
    64: Tiles(16, 64, 1, 3, occupancy=None), 128: Tiles(16, 32, 1, 3, occupancy=None), 256: Tiles(16, 32, 2, 3, occupancy=None),
}  # fmt: skip
# Exceptions for chips that cannot take the common tiles: {(kind, kernel): {columns: Tiles}}, in 16-bit types.
_OWN = {
    # Without a limit the compiler reduces registers to 168, where 16 bytes spill.
    ("sm80", "few rows"): _ONE_WARP | {64: Tiles(16, 64, 1, 3, 255, occupancy=None)},
    # Without a limit the compiler reduces registers to 168, where 8 bytes spill; below 248 those of pages spill.
    ("sm90", "few rows"): _ONE_WARP | {256: Tiles(16, 32, 2, 3, 255, occupancy=None)},
    # With 64 keys, also without statistics, 255 registers do not suffice, and 8 or 16 bytes spill.
    ("sm100", "few rows"): _ONE_WARP | {64: Tiles(16, 32, 1, 3, occupancy=None), 256: Tiles(16, 32, 2, 3, 255, occupancy=None)},
    ("sm80", "forward"): _HALVES["forward"] | {128: Tiles(128, 16, 8, 2), 256: Tiles(32, 32, 8, 1)},
    ("sm80", "masked forward"): _HALVES["masked forward"] | {128: Tiles(32, 32, 8, 1), 256: Tiles(32, 16, 8, 1)},
    # Warps lie along the rows of a tile that has as many rows as columns.
    ("sm80", "query gradient"): _HALVES["query gradient"] | {64: Tiles(128, 32, 8, 1), 128: Tiles(128, 16, 8, 1)},
    ("sm80", "masked query gradient"): _HALVES["masked query gradient"] | dict.fromkeys((64, 128), Tiles(32, 32, 8, 1)),
    # Together at 128, the terms of statistics leave registers for 16 x 64: 2.4 times the instructions a score, as on sm_90.
    ("sm80", "key gradient"): _HALVES["key gradient"] | {128: Tiles(16, 128, 8, 2, apart=True)},
    ("sm80", "masked key gradient"): _HALVES["masked key gradient"] | {64: Tiles(16, 32, 8, 1)},
    # Products of a warp group need at least 64 rows for each of its 4 warps, and unsplit columns.
    ("sm90", "forward"): _HALVES["forward"] | {64: Tiles(128, 64, 8, 3), 128: Tiles(128, 64, 8, 2)},
    ("sm90", "masked forward"): _HALVES["masked forward"] | {64: Tiles(128, 64, 8, 1), 128: Tiles(128, 32, 8, 1)},
    ("sm90", "query gradient"): _HALVES["query gradient"] | {64: Tiles(128, 64, 8, 2), 128: Tiles(128, 32, 8, 2)},
    ("sm90", "key gradient"): _HALVES["key gradient"] | {64: Tiles(32, 128, 8, 2), 128: Tiles(32, 128, 8, 2, apart=True)},
    ("sm90", "masked query gradient"): _HALVES["masked query gradient"] | dict.fromkeys((64, 128), Tiles(128, 16, 8, 1)),
    ("sm90", "masked key gradient"): _HALVES["masked key gradient"] | {128: Tiles(32, 32, 8, 1)},
    ("sm100", "query gradient"): _HALVES["query gradient"] | {256: Tiles(32, 32, 8, 1, 248)},
    ("sm100", "masked key gradient"): _HALVES["masked key gradient"] | {128: Tiles(16, 32, 8, 2)},
    ("sm100", "masked query gradient"): _HALVES["masked query gradient"] | {128: Tiles(64, 32, 8, 1)},
    ("sm100", "forward"): _HALVES["forward"] | {64: Tiles(128, 32, 8, 3), 128: Tiles(128, 32, 8, 1)},
    # Without a limit and without statistics the compiler reduces registers to 128, where 16 bytes spill.
    **{(chip, "tangents by key"): _HALVES["tangents by key"] | {64: Tiles(32, 32, 8, 1, 255)} for chip in ("sm90", "sm100")},
    # With 32 keys one register more than 512 is needed.
    ("gfx", "query gradient"): _HALVES["query gradient"] | {256: Tiles(32, 16, 8, 1)},
    ("gfx", "tangents by key"): _HALVES["tangents by key"] | {64: Tiles(16, 32, 8, 1), 128: Tiles(16, 16, 8, 1)},
    ("rdna", "forward"): _HALVES["forward"] | {64: Tiles(128, 16, 8, 1)},
}
# Scaling gradients into the range of float16 takes registers too.
_OWN_F16 = {
    # With 64 keys and all statistics 8 bytes spill.
    ("sm80", "few rows"): _ONE_WARP | {64: Tiles(16, 32, 1, 3, occupancy=None)},
    # Without a limit the compiler reduces registers to 128, where 8 to 24 bytes spill.
    ("sm80", "key gradient"): _OWN["sm80", "key gradient"] | {256: Tiles(16, 16, 8, 1, 255)},
    ("sm90", "key gradient"): _OWN["sm90", "key gradient"] | {256: Tiles(16, 16, 8, 1, 255)},
    ("sm100", "key gradient"): _HALVES["key gradient"] | {256: Tiles(16, 16, 8, 1, 255)},
}
# Tiles of calls without statistics, soft-cap, dropout, sinks and padding, for bf16 and f16.
_BARE = {
    ("sm80", "key gradient"): {128: Tiles(16, 128, 8, 2)},
    ("sm90", "forward"): {64: Tiles(128, 64, 8, 3, 128), 128: Tiles(128, 128, 8, 2, 248)},
    ("sm90", "query gradient"): {64: Tiles(128, 64, 8, 3), 128: Tiles(128, 64, 8, 3)},
    ("sm90", "key gradient"): {64: Tiles(64, 128, 8, 2), 128: Tiles(32, 128, 8, 2)},
    # Without a limit the compiler reduces registers to 80, where 8 bytes spill.
    ("sm100", "query gradient"): {64: Tiles(64, 64, 8, 2, 128)},
    # A wave of 32 lanes has 256 registers a lane, and takes whole rows of 128 columns into them. So wide, or with statistics,
    # every tile of gradients spills, and every one of keys'.
    ("rdna", "forward"): {64: Tiles(128, 64, 8, 1)},
    ("rdna", "query gradient"): {64: Tiles(64, 16, 4, 1)},
}
_BARE_F16 = {("sm80", "few rows"): {64: _OWN["sm80", "few rows"][64]}}
# Tiles of calls with gradients of entropy and variance alone: those of all statistics take 17.2 instructions a score for
# the entropy, these 12.3.
_MOMENTS = {("sm90", "query gradient"): {128: Tiles(128, 64, 8, 3)}}
_INTERPRETED = {"few rows": Tiles(16, 16, 1, 1), "key gradient": Tiles(32, 32, 4, 1, apart=True)}
_BARE_INTERPRETED = _INTERPRETED | {"key gradient": Tiles(32, 32, 4, 1)}


def tiles(kernel: str, chip: Chip, dtype: torch.dtype, columns: int, masked: bool = False, results: str = "other") -> Tiles:
    """Returns the tiles of a kernel.

    kernel: "forward", "few rows" (a decode step's, as few as tensor cores take), "query gradient" or "key gradient".
    columns: the larger of both padded head dimensions, at most 256.
    masked: with a boolean mask or a bias, and the key gradient with padded dimensions.
    results: "lse" without other statistics, or their gradients; "moments" with gradients of entropy and variance alone;
    "all" with any; "other" if soft-cap, dropout, sinks or padding take registers as well, for which tables have no rows.
    """
    name = f"masked {kernel}" if masked and kernel != "few rows" else kernel
    key = Key(name, DTYPES[dtype], columns, results)
    measured = table_of(chip.kind, chip.card).tiles
    if results == "moments" and key not in measured and not _for_moments(key, chip):
        key = key._replace(results="all")
    return measured.get(key) or unmeasured(key, chip)


def _for_moments(key: Key, chip: Chip) -> Tiles | None:
    halves = key.results == "moments" and key.dtype != "f32"
    return _MOMENTS.get((chip.kind, key.kernel), {}).get(key.columns) if halves else None


def unmeasured(key: Key, chip: Chip) -> Tiles:
    """Returns the tiles of the tables above, for a key of `tile_table` or with the results "other"."""
    name, dtype, columns = key.kernel, key.dtype, key.columns
    if found := _for_moments(key, chip):
        return found
    bare = key.results == "lse" and not name.startswith("masked ")
    if chip.kind == "interpreter":
        return (_BARE_INTERPRETED if key.results == "lse" else _INTERPRETED).get(name, Tiles(32, 32, 4, 1))
    if dtype == "f32":
        by_columns = _FLOATS[name]
    else:
        own, alone = (_OWN | _OWN_F16, _BARE | _BARE_F16) if dtype == "f16" else (_OWN, _BARE)
        by_columns = own.get((chip.kind, name), _HALVES[name])
        if bare and columns in alone.get((chip.kind, name), ()):
            by_columns = alone[chip.kind, name]
    found = by_columns[min(width for width in by_columns if width >= columns)]
    if chip.kind == "rdna":
        return found._replace(stages=1, registers=0)
    if chip.kind in ("gfx", "xpu"):
        # A warp has 64 lanes there, and half as many warps have twice the registers. The current tile counts as a
        # stage.
        return found._replace(warps=4, stages=1, registers=0)
    return found


def precision(kernel: str, chip: Chip, columns: int) -> str:
    """Returns the precision of float32 products: three tensor core products of parts, if available, keep all digits.
    Wide rows use plain products, because their parts leave no registers."""
    widest = 64 if kernel == "key gradient" else 128
    return "tf32x3" if chip.kind.startswith("sm") and columns <= widest else "ieee"


def chained(kernel: str, chip: Chip, dtype: torch.dtype, masked: bool, warps: int) -> int:
    """Returns how many chained sums of each kind a row has (`sums`): 4 of pairs of keys, 8, or 0 for a tree. With all
    statistics an iteration on sm_90 at 64 takes 532 instructions with 8 and, if it hides nothing from causal rows, 474
    with 4; on sm_80 344 by trees and 299. With a boolean mask or bias, 8 and a tree take fewest. On other chips the
    keys of a row are in several warps, or in another order in a thread: 12 % more for few rows that several warps
    share, 14 % in kernels of sm_100. In float32, with tiles of only 32 keys, 16 bytes spilled."""
    if (kernel, warps) != ("few rows", 1) and kernel != "forward":
        return 0
    if chip.kind not in ("sm80", "sm90", "interpreter") or dtype == torch.float32:
        return 0
    if masked:
        return 0 if chip.kind == "sm80" else 8
    return 4


@lru_cache(4096)
def decisions(heads: int, kv_heads: int, queries: int, paged: bool, given: tuple[tuple[str, int], ...]) -> Any:
    """Returns the library's decisions of a call, by the names of src/call/device_plan.h.

    given: arguments that are no defaults, with their numbers, or any number for a tensor."""
    return SimpleNamespace(**json.loads(OPS.device_plan(heads, kv_heads, queries, paged, json.dumps(dict(given)))))


def programs_of(chip: Chip, registers: int, shared: int, warps: int) -> int:
    """Returns the programs that a multiprocessor of an NVIDIA chip runs at once: it has 65536 registers, which warps
    get by the 256, and each program takes 1 KiB more shared memory than it requests.

    registers: of a thread. shared: bytes of a program."""
    by_registers = 65536 // (-(-registers * 32 // 256) * 256 * warps)
    return max(1, min(by_registers, chip.shared // (shared + 1024), 64 // warps))


def occupancy_of(tiles: Tiles, chip: Chip, dtype: torch.dtype, dim: int, columns: int) -> int:
    """Returns the programs that a multiprocessor runs at once: the tiles' occupancy or, if that is None, the computed
    one of a decode step on an NVIDIA chip, else the default. A decode step's program has the shared memory of its
    queries and of the tiles of keys and values that it loads ahead.

    dim, columns: padded head dimensions of keys and of values."""
    if tiles.occupancy is not None:
        return tiles.occupancy
    if not chip.kind.startswith("sm"):
        return Tiles._field_defaults["occupancy"]
    shared = ((tiles.stages - 1) * tiles.keys * (dim + columns) + tiles.rows * dim) * dtype.itemsize
    return programs_of(chip, tiles.registers or 255, shared, tiles.warps)


@lru_cache(4096)
def shares_of(chip: Chip, blocks: int, keys: int, tile: int, occupancy: int) -> int:
    """Returns the library's number of shares that the keys are split into, so that the programs fill whole waves; 1: not split.

    occupancy: programs that a multiprocessor runs at once."""
    return OPS.shares_of(occupancy * chip.units, blocks, keys, tile)
