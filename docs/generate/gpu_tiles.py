"""The package's table of tiles, from what docs/results/gpu-h200.json measured."""

import json

from text import record

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


def files() -> dict[str, str]:
    found = record("gpu-h200")
    current = [row for row in found["tiles"] if row["kernel"] not in OUTDATED]
    head = {"version": 2, "card": found["machine"], "chip": "sm90", "date": found["date"], **found["versions"]}
    rows = ",\n  ".join(json.dumps(row) for row in fastest(current))
    return {"python/isentrope/gpu/tile_tables/sm90.json": f'{json.dumps(head)[:-1]}, "rows": [\n  {rows}\n]}}\n'}
