#!/usr/bin/env python3
"""Writes what Python and C declare for each statistic, from the list of include/isentrope/statistics.h.

    docs/generate/statistic_fields.py [--check]      # --check: says which files are not current, and fails where one is not
"""

import re
import sys
import textwrap
from pathlib import Path

from marks import main, put

ROOT = Path(__file__).parents[2]
FIELD = re.compile(r"((?:  // .*\n)+)  (?:T|Count) (\w+)\{\};\n")


def statistics() -> list[tuple[str, str]]:
    """Returns names and descriptions. A missed one fails to compile, because C's struct has the size of the list."""
    header = (ROOT / "include/isentrope/statistics.h").read_text()
    fields = header.partition("struct StatisticFields {\n")[2].partition("\n};")[0] + "\n"
    return [(name, " ".join(comment.replace("//", "").split())) for comment, name in FIELD.findall(fields)]


def in_python(name: str, what: str) -> list[str]:
    """Returns the lines of a field. Python's keywords get an underscore, as in the rest of the package."""
    name = "lambda_" if name == "lambda" else name
    text = textwrap.wrap(f'"""{what}"""', 120, initial_indent="    ", subsequent_indent="    ")
    return [f"    {name}: Tensor = _NOT_REQUESTED", *text]


def fields() -> dict[Path, list[str]]:
    listed = statistics()
    return {
        ROOT / "python/isentrope/statistics.py": [line for field in listed for line in in_python(*field)],
        ROOT / "include/isentrope/isentrope.h": [f"  isentrope_array {name};" for name, _ in listed],
    }


if __name__ == "__main__":
    sys.exit(main({path: put(path.read_text(), "statistics", lines) for path, lines in fields().items()}))
