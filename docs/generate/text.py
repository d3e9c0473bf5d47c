"""Numbers, tables and records as lines of pages."""

import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "python/isentrope/models"))  # without the package, which has to be built

import student  # noqa: E402

MISSING = "–"


def record(name: str) -> dict:
    return json.loads((ROOT / "docs/results" / f"{name}.json").read_text())


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in escaped)]


def decimal(value: float | None, decimals: int) -> str:
    """Returns "43.27", with a true minus sign; an en dash for a number that is missing or not finite."""
    if value is None or not math.isfinite(value):
        return MISSING
    text = f"{abs(value):.{decimals}f}"
    return f"−{text}" if value < 0 and float(text) else text


def signed(value: float | None, decimals: int) -> str:
    """Returns the same with a sign always, "+7.15"; "0.00" has none."""
    text = decimal(value, decimals)
    return f"+{text}" if value is not None and value > 0 and text != MISSING and float(text) else text


def interval(low: float | None, high: float | None, decimals: int) -> str:
    ends = [decimal(low, decimals), decimal(high, decimals)]
    return MISSING if MISSING in ends else f"[{ends[0]}, {ends[1]}]"


def with_interval(differences: Sequence[float], decimals: int) -> str:
    """Returns "−0.118 [−0.163, −0.073]": mean of paired differences, and its 95 % interval by Student's t of three or more."""
    middle, count = fmean(differences), len(differences)
    deviation = stdev(differences) if count > 2 else 0
    half = student.quantile(count - 1) * deviation / math.sqrt(count) if deviation else math.nan
    return f"{signed(middle, decimals)} {interval(middle - half, middle + half, decimals)}"


def compact(value: float) -> str:
    """Returns the shortest text, with thousands apart from five digits on: "1024", "10,000", "0.001"."""
    size = abs(value)
    digits = repr(size) if size != int(size) else f"{size:,.0f}" if size >= 10000 else f"{size:.0f}"
    return f"−{digits}" if value < 0 else digits


def from_to(begin: float, end: float) -> str:
    return f"{compact(begin)} to {compact(end)}"
