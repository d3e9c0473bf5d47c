"""Stores results of an evaluation in a file, from which another run continues."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from isentrope._core.files import read_text, write_text
from isentrope._core.values import is_integer, shown


class Results:
    """Mean losses of blocks of positions by method and passage, written to a file as they are computed.

    The file begins with a line that describes the run. Raises ValueError for any other file.
    """

    def __init__(self, path: Path | None, settings: dict[str, Any]) -> None:
        self._path, self._settings = path, settings
        # Number of the first block, and the losses from it on.
        self._losses: dict[tuple[str, int], tuple[int, list[float]]] = {}
        if path is None:
            return
        if path.exists() and not path.is_file():
            raise ValueError(f"[Results] {path} must be a file that can be read again; got a folder, a device or a pipe")
        if path.exists() and (text := read_text(path)):
            first, *rest = text.split("\n")
            if not rest and first.startswith("{"):
                raise ValueError(
                    f"[Results] {path} must begin with a whole line; got a truncated one: remove the file to begin anew"
                )
            if (saved := _parse(path, 1, first)) != settings:
                raise ValueError(f"[Results] {path} must be of this model, text and settings; {_difference(saved, settings)}")
            # The last line is empty, or was being written when the run was stopped.
            for number, line in enumerate(rest[:-1], 2):
                method, passage, begin, nll = _parse_passage(path, number, line)
                self._losses[method, passage] = begin, nll
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write()

    def get(self, method: str, passage: int, blocks: range) -> list[float] | None:
        """Returns the losses of these blocks; None for an unknown passage. Raises ValueError if some are missing."""
        if (method, passage) not in self._losses:
            return None
        first, nll = self._losses[method, passage]
        if blocks.start < first or blocks.stop > first + len(nll):
            raise ValueError(
                f"[Results] results must have the blocks {blocks.start} to {blocks.stop} of a passage; "
                f"got {first} to {first + len(nll)} of {method}"
            )
        return nll[blocks.start - first : blocks.stop - first]

    def add(self, method: str, passage: int, nll: list[float], first: int = 0) -> None:
        self._losses[method, passage] = first, nll
        self._write()

    def _write(self) -> None:
        """Writes the whole file atomically: after a power cut an appended line may be incomplete."""
        if self._path is None:
            return
        lines = [self._settings] + [
            {"method": m, "passage": p, "first": first, "nll": nll} for (m, p), (first, nll) in self._losses.items()
        ]
        write_text(self._path, "".join(json.dumps(line) + "\n" for line in lines))


def _parse(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise ValueError(f"[Results] line {number} of {path} must be JSON; got {line[:60]!r}") from None


def _difference(found: Any, settings: dict[str, Any]) -> str:
    """Returns the name of a setting that differs, with the wanted and the found value."""
    if not isinstance(found, dict):
        return f"got {shown(found)}"
    absent = object()
    values = {name: (settings.get(name, absent), found.get(name, absent)) for name in [*settings, *found]}
    name, pair = next((name, pair) for name, pair in values.items() if pair[0] != pair[1])
    wanted, got = ("absent" if value is absent else shown(value) for value in pair)
    return f"{name} must be {wanted}; got {got}"


def _parse_passage(path: Path, number: int, line: str) -> tuple[str, int, int, list[float]]:
    match _parse(path, number, line):
        case {"method": str(method), "passage": int(passage), "nll": [*nll], **rest}:
            # In older files the losses begin with the passage, without a key for it.
            first: Any = rest.get("first", 0)
            if is_integer(first) and first >= 0 and all(isinstance(x, float) and math.isfinite(x) for x in nll):
                return method, passage, first, nll
    raise ValueError(f"[Results] line {number} of {path} must have method, passage, first and nll; got {line[:60]!r}")


def check_results(function: str, results: Any) -> None:
    if results is not None and not isinstance(results, Results):
        raise TypeError(f"[{function}] results must be Results, or None; got {shown(results)}")
