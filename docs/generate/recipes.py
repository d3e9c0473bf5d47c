#!/usr/bin/env python3
"""Puts the files of examples/ into the pages that show them, README.md among them, between <!-- begin examples/... --> and its end.

    docs/generate/recipes.py [--check]      # --check: says which pages are not current, and fails
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(<!-- begin (examples/[\w/.-]+) -->\n).*?(<!-- end \2 -->\n)", re.DOTALL)
LANGUAGES = {".py": "python", ".cc": "cpp", ".c": "c", ".txt": "cmake", "": "bash"}


def filled(page: str) -> str:
    def block(found: re.Match[str]) -> str:
        file = ROOT / found[2]
        return f"{found[1]}```{LANGUAGES[file.suffix]}\n{file.read_text()}```\n{found[3]}"

    return BLOCK.sub(block, page)


def main() -> int:
    stale = [page for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")] if filled(page.read_text()) != page.read_text()]
    for page in stale:
        if "--check" in sys.argv:
            print(f"not current, build the target docs: {page}")
        else:
            page.write_text(filled(page.read_text()))
    return len(stale) if "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
