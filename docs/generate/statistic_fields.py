#!/usr/bin/env python3
"""Writes what Python and C declare for each statistic, from the list of include/isentrope/statistics.h.

    docs/generate/statistic_fields.py [--check]      # --check: says which files are not current, and fails where one is not
"""

import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The lines between those with the marks.
BLOCK = re.compile(r"(<!-- begin statistics -->[^\n]*\n).*?(?=[^\n]*<!-- end statistics -->)", re.DOTALL)
FIELD = re.compile(r"((?:  // .*\n)+)  (?:T|Count) (\w+)\{\};\n")


def statistics() -> list[tuple[str, str]]:
    """Names, and what they are. One that this overlooks fails to compile: C's struct is as large as the list."""
    header = (ROOT / "include/isentrope/statistics.h").read_text()
    fields = header.partition("struct StatisticFields {\n")[2].partition("\n};")[0] + "\n"
    return [(name, " ".join(comment.replace("//", "").split())) for comment, name in FIELD.findall(fields)]


def in_python(name: str, what: str) -> list[str]:
    """A field. A word that Python keeps for itself gets an underscore, as in the rest of the package."""
    name = "lambda_" if name == "lambda" else name
    text = textwrap.wrap(f'"""{what}"""', 120, initial_indent="    ", subsequent_indent="    ")
    return [f"    {name}: Tensor | None = None", *text]


def main() -> int:
    found = statistics()
    lines = {
        ROOT / "python/isentrope/statistics.py": [line for field in found for line in in_python(*field)],
        ROOT / "include/isentrope/isentrope.h": [f"  isentrope_array {name};" for name, _ in found],
    }
    stale = 0
    for path, generated in lines.items():
        old = path.read_text()
        new = BLOCK.sub("".join([r"\1", *(f"{line}\n" for line in generated)]), old)
        if new != old and "--check" in sys.argv:
            print(f"not current, build the target docs: {path}")
            stale += 1
        elif new != old:
            path.write_text(new)
    return stale


if __name__ == "__main__":
    sys.exit(main())
