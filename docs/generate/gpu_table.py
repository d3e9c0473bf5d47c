#!/usr/bin/env python3
"""Writes the tables of compiled kernels in docs/contributors/gpu-compiled.md and gpu-time.md, and docs/results/gpu-static.json.

    docs/generate/gpu_table.py [compiled] [static] [statistics] [measured]  # all of them: some minutes; PYTHONPATH must have isentrope, as in the build's python folder
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests/python/gpu"), str(ROOT)]

import table  # noqa: E402
from marks import put  # noqa: E402

from bench.gpu import costs, static  # noqa: E402
from isentrope._core.files import write_text  # noqa: E402

PAGE, OF_TIME = ROOT / "docs/contributors/gpu-compiled.md", ROOT / "docs/contributors/gpu-time.md"


def static_table():
    kernels = [x for dtype in static.DTYPES for dim in static.DIMS for x in static.measured(dtype, dim)]
    write_text(ROOT / "docs/results/gpu-static.json", json.dumps(static.as_json(kernels)) + "\n")
    return static.table([x for x in kernels if x.dtype == "bf16"])


def statistics():
    return costs.table(costs.every_cost("bf16"))


def measured():
    return costs.table(costs.every_cost("bf16", measured_tiles=True))


TABLES = {"compiled": (PAGE, table.lines), "static": (PAGE, static_table), "statistics": (OF_TIME, statistics), "measured": (OF_TIME, measured)}
for name in sys.argv[1:] or TABLES:
    page, lines = TABLES[name]
    write_text(page, put(page.read_text(), name, lines()))
