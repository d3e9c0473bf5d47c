"""Files of examples/ in the pages that show them, README.md among them, between <!-- begin examples/... --> and its end."""

import re

from text import ROOT

MARK = re.compile(r"<!-- begin (examples/[\w/.-]+) -->")
LANGUAGES = {".py": "python", ".cc": "cpp", ".c": "c", ".txt": "cmake", "": "bash"}


def tables() -> dict[tuple[str, str], list[str]]:
    found = {}
    for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))):
        for name in MARK.findall(page.read_text()):
            lines = (ROOT / name).read_text().splitlines()
            found[str(page.relative_to(ROOT)), name] = [f"```{LANGUAGES[(ROOT / name).suffix]}", *lines, "```"]
    return found
