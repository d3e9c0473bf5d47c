#!/usr/bin/env python3
"""Writes the package's table of tiles, python/isentrope/gpu/tile_tables/sm90.json, from what docs/results/gpu-h200.json measured.

    docs/generate/gpu_tiles.py [--check]          # --check: exit status 1 if the table is not current
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "docs/results/gpu-h200.json"
TABLE = ROOT / "python/isentrope/gpu/tile_tables/sm90.json"
KEY = ("kernel", "dtype", "columns", "results")
OUTDATED = ("few rows",)  # kernels whose loop was replaced after the measurement
FIELDS = ("rows", "keys", "warps", "stages", "registers", "apart")


def fastest(measured):
    """Returns the fastest tiles by kernel, type, dimension and results, with the time of the former ones."""
    best, planned = {}, {}
    for row in measured:
        key = tuple(row[name] for name in KEY)
        if key not in best or row["ms"] < best[key]["ms"]:
            best[key] = row
        if row["planned"] and row.get("shares", 1) == 1:
            planned[key] = min(row["ms"], planned.get(key, row["ms"]))
    for key, row in best.items():
        tiles = {name: x for name, x in zip(FIELDS, row["tiles"]) if x or name not in ("registers", "apart")}
        yield dict(zip(KEY, key)) | {"tiles": tiles, "ms": row["ms"], "planned_ms": planned[key]}


def table():
    record = json.loads(MEASURED.read_text())
    current = [row for row in record["tiles"] if row["kernel"] not in OUTDATED]
    head = {"version": 2, "card": record["machine"], "chip": "sm90", "date": record["date"], **record["versions"]}
    rows = ",\n  ".join(json.dumps(row) for row in fastest(current))
    return f'{json.dumps(head)[:-1]}, "rows": [\n  {rows}\n]}}\n'


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(TABLE.read_text() != table() and f"{TABLE} is not current: run docs/generate/gpu_tiles.py")
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(table())
