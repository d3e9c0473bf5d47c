"""Declarations of the statistics for Python and C, from the list of include/isentrope/statistics.h."""

import re
import textwrap

from text import ROOT

STATISTIC = re.compile(r"\.name = \"(\w+)\".*?\.means =((?:\s*\"[^\"]*\")+)", re.DOTALL)


def statistics() -> list[tuple[str, str]]:
    """Returns names and descriptions. A missed one fails to compile, because C's struct has the size of the list."""
    header = (ROOT / "include/isentrope/statistics.h").read_text()
    return [(name, "".join(re.findall(r'"([^"]*)"', means))) for name, means in STATISTIC.findall(header)]


def in_python(name: str, what: str) -> list[str]:
    """Returns the lines of a field. Python's keywords get an underscore, as in the rest of the package."""
    name = "lambda_" if name == "lambda" else name
    text = textwrap.wrap(f'"""{what}"""', 120, initial_indent="    ", subsequent_indent="    ")
    return [f"    {name}: Tensor = _NOT_REQUESTED", *text]


def tables() -> dict[tuple[str, str], list[str]]:
    listed = statistics()
    return {
        ("python/isentrope/statistics.py", "statistics"): [line for field in listed for line in in_python(*field)],
        ("include/isentrope/isentrope.h", "statistics"): [f"  isentrope_array {name};" for name, _ in listed],
    }
