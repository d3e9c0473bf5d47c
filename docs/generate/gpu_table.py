#!/usr/bin/env python3
"""Writes the table of docs/gpu.md: what becomes of the kernels on chips that are not here.

    docs/generate/gpu_table.py          # a few minutes; PYTHONPATH must have isentrope, as in the build's python folder
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/python/gpu"))

import table  # noqa: E402

PAGE = ROOT / "docs/gpu.md"
before, _, rest = PAGE.read_text().partition(table.BEGIN)
_, _, after = rest.partition(table.END)
PAGE.write_text(before + table.BEGIN + "\n" + "\n".join(table.lines()) + "\n" + table.END + after)
