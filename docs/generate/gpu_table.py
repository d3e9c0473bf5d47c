#!/usr/bin/env python3
"""Writes the tables of compiled kernels in docs/contributors/gpu-compiled.md and gpu-time.md, and docs/results/gpu-static.json.

    docs/generate/gpu_table.py [compiled] [static] [statistics] [measured]  # all of them: some minutes; PYTHONPATH must have isentrope, as in the build's python folder
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests/python/gpu"), str(ROOT / "bench")]

import gpu_static  # noqa: E402
import gpu_statistics  # noqa: E402
import table  # noqa: E402
from isentrope._core.files import write_text  # noqa: E402
from marks import put  # noqa: E402

PAGE, OF_TIME = ROOT / "docs/contributors/gpu-compiled.md", ROOT / "docs/contributors/gpu-time.md"


def static():
    kernels = [x for dtype in gpu_static.DTYPES for dim in gpu_static.DIMS for x in gpu_static.measured(dtype, dim)]
    write_text(ROOT / "docs/results/gpu-static.json", json.dumps(gpu_static.as_json(kernels)) + "\n")
    return gpu_static.table([x for x in kernels if x.dtype == "bf16"])


def statistics():
    return gpu_statistics.table(gpu_statistics.every_cost("bf16"))


def measured():
    return gpu_statistics.table(gpu_statistics.every_cost("bf16", measured_tiles=True))


TABLES = {"compiled": (PAGE, table.lines), "static": (PAGE, static), "statistics": (OF_TIME, statistics), "measured": (OF_TIME, measured)}
for name in sys.argv[1:] or TABLES:
    page, lines = TABLES[name]
    write_text(page, put(page.read_text(), name, lines()))
