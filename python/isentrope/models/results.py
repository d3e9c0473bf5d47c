"""The results of an evaluation so far, in a file from which another run continues."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from isentrope._core.files import read_text, write_text
from isentrope._core.values import shown


class Results:
    """Losses by method and passage, written to a file as they are computed, so that a run can be stopped and continued.

    The file begins with a line that says what was run. Raises ValueError for a file of another run, and for one that
    holds anything else.
    """

    def __init__(self, path: Path | None, settings: dict[str, Any]) -> None:
        self._path, self._settings = path, settings
        self._found: dict[tuple[str, int], list[float]] = {}
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
            if _parsed(path, 1, first) != settings:
                raise ValueError(f"[Results] {path} must be of this model, text and settings; got another run's")
            # The last one is empty, or was being written when the run was stopped.
            for number, line in enumerate(rest[:-1], 2):
                method, passage, nll = _finished(path, number, line)
                self._found[method, passage] = nll
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write()

    def get(self, method: str, passage: int) -> list[float] | None:
        return self._found.get((method, passage))

    def add(self, method: str, passage: int, nll: list[float]) -> None:
        self._found[method, passage] = nll
        self._write()

    def _write(self) -> None:
        """All of it, at once: a line that is appended may be half of one after a power cut."""
        if self._path is None:
            return
        lines = [self._settings] + [{"method": m, "passage": p, "nll": x} for (m, p), x in self._found.items()]
        write_text(self._path, "".join(json.dumps(line) + "\n" for line in lines))


def _parsed(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise ValueError(f"[Results] line {number} of {path} must be JSON; got {line[:60]!r}") from None


def _finished(path: Path, number: int, line: str) -> tuple[str, int, list[float]]:
    match _parsed(path, number, line):
        case {"method": str(method), "passage": int(passage), "nll": [*nll]}:
            if all(isinstance(x, float) and math.isfinite(x) for x in nll):
                return method, passage, nll
    raise ValueError(f"[Results] line {number} of {path} must have method, passage and nll; got {line[:60]!r}")


def check_results(function: str, results: Any) -> None:
    if results is not None and not isinstance(results, Results):
        raise TypeError(f"[{function}] results must be Results, or None; got {shown(results)}")
