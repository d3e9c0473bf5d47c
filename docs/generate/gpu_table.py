#!/usr/bin/env python3
"""Writes the tables of docs/contributors/gpu.md, and docs/results/gpu-static.json: what becomes of the kernels on chips that are not here.

    docs/generate/gpu_table.py          # some minutes; PYTHONPATH must have isentrope, as in the build's python folder
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests/python/gpu"), str(ROOT / "bench")]

import gpu_static  # noqa: E402
import table  # noqa: E402
from isentrope._core.files import write_text  # noqa: E402
from marks import put  # noqa: E402

PAGE = ROOT / "docs/contributors/gpu.md"

kernels = [x for dtype in gpu_static.DTYPES for dim in gpu_static.DIMS for x in gpu_static.measured(dtype, dim)]
write_text(ROOT / "docs/results/gpu-static.json", json.dumps(gpu_static.as_json(kernels)) + "\n")
text = put(PAGE.read_text(), "static", gpu_static.table([x for x in kernels if x.dtype == "bf16"]))
write_text(PAGE, put(text, "compiled", table.lines()))
