"""Tables of tiles that were measured on a card: those of the package, and those that `isentrope tune` writes on this machine.

A table is JSON: the card, its chip, the version of Triton, and rows. Each row has the fastest tiles that were right,
for a kernel, type, padded head dimension and set of results. The user's table comes before the package's (`table_of`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import triton

from isentrope._core.files import read_text

VERSION = 2
DTYPES = ("bf16", "f16", "f32")
RESULTS = ("lse", "moments", "all")
# Padded head dimensions.
COLUMNS = (16, 32, 64, 128, 256)
KERNELS = ("forward", "few rows", "query gradient", "key gradient")
_SHIPPED = Path(__file__).parent / "tile_tables"


class Tiles(NamedTuple):
    """How a kernel's work is cut.

    rows, keys: queries and keys of a tile. warps: of a program. stages: tiles whose loads are in flight. registers: most that a
    thread may have; 0 leaves it to the compiler. apart: the gradients of keys and of values take a launch each.
    occupancy: programs that a multiprocessor runs at once, which the shares of a split call are to fill; None: computed
    from registers and shared memory (`plan.occupancy_of`).
    descriptors: whole tiles of keys and values are loaded by tensor descriptors where strides allow it, except in the
    key gradient.
    """

    rows: int
    keys: int
    warps: int
    stages: int
    registers: int = 0
    apart: bool = False
    occupancy: int | None = 2
    descriptors: bool = False


class Key(NamedTuple):
    """A row of a table. kernel: one of KERNELS, or "masked " and one of them.

    results: "lse" for calls without other statistics or their gradients; "moments" for query gradients with those of
    entropy and variance; "all" with any. Calls with soft-cap, dropout, sinks or padding have no row."""

    kernel: str
    dtype: str
    columns: int
    results: str


class Table(NamedTuple):
    """Measured tiles, the name of the card, and the text of `isentrope doctor` about their origin."""

    tiles: dict[Key, Tiles]
    card: str
    source: str


NONE = Table({}, "", "tiles that were not measured on this card; isentrope tune measures them")


@cache
def kernels_hash() -> str:
    """Returns a hash of the kernels' source: tables of other kernels are not used."""
    digest = hashlib.sha256()
    for file in sorted((Path(__file__).parent / "kernels").glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def user_file(card: str) -> Path:
    """Returns the file of a card's table from `isentrope tune`, in the user's cache folder."""
    cache_folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache_folder) / "isentrope" / f"tiles-{re.sub('[^A-Za-z0-9]+', '-', card).strip('-')}.json"


def as_json(tiles: Tiles) -> dict[str, Any]:
    """Returns the tiles without fields at their default."""
    return {name: value for name, value in tiles._asdict().items() if value != Tiles._field_defaults.get(name)}


def parse(text: str, source: str) -> Table:
    """Parses a table from JSON. Raises ValueError naming `source` if it is malformed."""
    try:
        found = json.loads(text)
        if found["version"] != VERSION:
            raise ValueError(f"version {VERSION} is required; got {found['version']}")
        rows = {Key(*(row[name] for name in Key._fields)): Tiles(**row["tiles"]) for row in found["rows"]}
        for key, tiles in rows.items():
            _check(key, tiles)
        return Table(rows, found["card"], source)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"[gpu] {source} must be a table of tiles; got {type(error).__name__}: {error}") from error


def _check(key: Key, tiles: Tiles) -> None:
    known = key.kernel.removeprefix("masked ") in KERNELS and key.dtype in DTYPES and key.results in RESULTS
    if not known or key.columns not in COLUMNS or (key.results == "moments" and key.kernel != "query gradient"):
        raise ValueError(f"unknown row {tuple(key)}")
    powers = all(type(x) is int and x > 0 and x & (x - 1) == 0 for x in (tiles.rows, tiles.keys, tiles.warps))
    fits = tiles.warps <= 32 and 1 <= tiles.stages <= 8 and (tiles.occupancy is None or tiles.occupancy > 0)
    if not powers or min(tiles.rows, tiles.keys) < 16 or not fits:
        raise ValueError(f"impossible tiles {tuple(tiles)}")


@cache
def shipped(chip: str) -> Table:
    """Returns the package's table for a kind of chip; NONE without one."""
    file = _SHIPPED / f"{chip}.json"
    if not file.exists():
        return NONE
    table = parse(read_text(file), str(file))
    return table._replace(source=f"tiles measured on one {table.card}, where there are any; isentrope tune measures this card")


@cache
def of_user(card: str) -> Table:
    """Returns the table of `isentrope tune` for a card. NONE without one; NONE with a warning if it cannot be used."""
    file = user_file(card)
    if not card or not file.exists():
        return NONE
    try:
        text = read_text(file)
        table = parse(text, str(file))
    except (OSError, ValueError) as error:
        warnings.warn(f"{error}: it is ignored; isentrope tune writes it anew", stacklevel=2)
        return NONE._replace(source=f"{NONE.source} ({file} cannot be read)")
    if reason := _outdated(json.loads(text)):
        warnings.warn(f"[gpu] {file} is ignored: {reason}; isentrope tune writes it anew", stacklevel=2)
        return NONE._replace(source=f"{NONE.source} ({file} is ignored: {reason})")
    if not table.tiles:
        return NONE._replace(source=f"{NONE.source} ({file} has none that gave right results)")
    return table._replace(source=f"tiles measured on this card: {file}")


def _outdated(found: dict[str, Any]) -> str:
    """Returns why a table of this machine is out of date; "" if it is not."""
    if found.get("triton") != triton.__version__:
        return f"it was measured with Triton {found.get('triton')}, this is {triton.__version__}"
    if found.get("kernels") != kernels_hash():
        return "it was measured with other kernels"
    return ""


@cache
def table_of(chip: str, card: str) -> Table:
    """Returns the tiles of a card: the user's table, completed by the package's table for this kind of chip."""
    own, package = of_user(card), shipped(chip)
    if not own.tiles:
        reason = own.source.removeprefix(NONE.source)
        return package._replace(source=package.source + reason)
    return own._replace(tiles=package.tiles | own.tiles)


_version = 0


def version() -> int:
    """Returns a number that grows whenever the plan may take other tiles."""
    return _version


def _changed() -> None:
    global _version
    _version += 1


@contextmanager
def trying(chip: str, card: str, key: Key, tiles: Tiles) -> Iterator[None]:
    """Makes the plan take these tiles for a key inside the block, in this process."""
    with warnings.catch_warnings():
        # A table that cannot be used is about to be replaced.
        warnings.simplefilter("ignore", UserWarning)
        table = table_of(chip, card).tiles
    before = table.get(key)
    table[key] = tiles
    _changed()
    try:
        yield
    finally:
        del table[key]
        if before is not None:
            table[key] = before
        _changed()


def forget() -> None:
    """Makes the next call read the tables again."""
    for function in (shipped, of_user, table_of):
        function.cache_clear()
    _changed()
