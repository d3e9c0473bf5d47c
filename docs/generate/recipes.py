#!/usr/bin/env python3
"""Puts the files of examples/ into the pages that show them, README.md among them, between <!-- begin examples/... --> and its end.

    docs/generate/recipes.py [--check]      # --check: says which pages are not current, and fails
"""

import re
import sys
from pathlib import Path

from marks import main, put

ROOT = Path(__file__).parents[2]
MARK = re.compile(r"<!-- begin (examples/[\w/.-]+) -->")
LANGUAGES = {".py": "python", ".cc": "cpp", ".c": "c", ".txt": "cmake", "": "bash"}


def filled(page: str) -> str:
    for name in MARK.findall(page):
        file = ROOT / name
        page = put(page, name, [f"```{LANGUAGES[file.suffix]}", *file.read_text().splitlines(), "```"])
    return page


if __name__ == "__main__":
    sys.exit(main({page: filled(page.read_text()) for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]}))
