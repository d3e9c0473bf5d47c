#!/usr/bin/env python3
"""Writes the generated parts of pages, of the package and of C's header, and the figures.

    docs/generate/pages.py build/release/bin [--check]
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

import calibration
import charts
import gpu_tiles
import models
import speed
import statistic_fields
import studies
import test_tables
import theory
from marks import put
from text import ROOT


EXAMPLE = re.compile(r"<!-- begin (examples/[\w/.-]+) -->")
LANGUAGES = {".py": "python", ".cc": "cpp", ".c": "c", ".txt": "cmake", "": "bash"}


def examples() -> dict[tuple[str, str], list[str]]:
    """Returns files of examples/ for the pages that show them, README.md among them."""
    found = {}
    for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))):
        for name in EXAMPLE.findall(page.read_text()):
            lines = (ROOT / name).read_text().splitlines()
            found[str(page.relative_to(ROOT)), name] = [f"```{LANGUAGES[(ROOT / name).suffix]}", *lines, "```"]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes the generated parts of the documentation.")
    parser.add_argument("programs", type=Path, help="folder of the programs isentrope and isentrope_docs_numbers")
    parser.add_argument("--check", action="store_true", help="write nothing, list the files that are not current, and fail if there are any")
    arguments = parser.parse_args()

    def run(program: str, *words: str | Path) -> dict:
        return json.loads(subprocess.run([arguments.programs / program, *words], check=True, stdout=subprocess.PIPE).stdout)

    numbers = run("isentrope_docs_numbers", *(ROOT / f"docs/results/{name}.json" for name in studies.NAMES))
    files = charts.figures(numbers) | gpu_tiles.files()
    tables = speed.tables() | calibration.tables() | theory.tables(numbers, run) | studies.tables(numbers)
    for (page, mark), lines in (tables | test_tables.tables() | models.tables() | statistic_fields.tables() | examples()).items():
        files[page] = put(files.get(page) or (ROOT / page).read_text(), mark, lines)
    stale = {ROOT / name: text for name, text in files.items() if not (ROOT / name).exists() or (ROOT / name).read_text() != text}
    for path, text in stale.items():
        print(f"not current, build the target docs: {path}" if arguments.check else path)
        if not arguments.check:
            path.write_text(text)
    return arguments.check and bool(stale)


if __name__ == "__main__":
    sys.exit(main())
