"""Writes records as JSON with one row a line, so that a changed row is one changed line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def json_rows(record: Any, depth: int, indent: str = "\n") -> str:
    """Returns a record as JSON text. A part that lies `depth` folds deep is one line, and so is one that holds no lists
    or objects."""
    inner = indent + " "
    parts = list(record.values()) if isinstance(record, dict) else record if isinstance(record, list) else []
    if depth == 0 or not any(isinstance(part, (dict, list)) for part in parts):
        return json.dumps(record)
    lines = [json_rows(part, depth - 1, inner) for part in parts]
    if isinstance(record, dict):
        lines = [f"{json.dumps(name)}: {line}" for name, line in zip(record, lines)]
        return "{" + inner + ("," + inner).join(lines) + indent + "}"
    return "[" + inner + ("," + inner).join(lines) + indent + "]"


def write_rows(path: Path, record: Any, depth: int) -> None:
    """Writes a record by json_rows() and replaces the file at once, so that a reader finds the old or the new one."""
    part = path.with_suffix(".part")
    part.write_text(json_rows(record, depth) + "\n")
    part.replace(path)
