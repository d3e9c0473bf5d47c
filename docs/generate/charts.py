"""Figures of the pages, and a plain SVG of each, because the documentation must be readable without scripts."""

import json
import math
import re
from collections import defaultdict
from html import escape
from statistics import fmean

import studies
import theory
from text import ROOT, compact, record

STYLE = """text { font: 11px var(--sans); }
rect { fill: var(--paper); }
.title { font-size: 13px; font-weight: 650; }
.title, .name { fill: var(--ink); }
.quiet { fill: var(--muted); }
.grid { stroke: var(--rule); }
.line { fill: none; stroke-width: 2; }
"""
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, LINE = 640, 376, 56, 30, 54, 44, 15
NAME_LETTERS = 90  # letters that fit in a legend's line
AVERAGED = 20  # steps in each point of a loss


class Scale:
    """Maps values to pixels along one axis."""

    def __init__(self, values: list[float], axis: str, begin: float, end: float):
        self.low, self.high, self.axis, self.begin, self.end = min(values), max(values), axis, begin, end

    def __call__(self, value: float) -> float:
        low, high, at = (x if self.axis == "linear" else math.log(x) for x in (self.low, self.high, value))
        return self.begin + (self.end - self.begin) * (at - low) / (high - low)

    def ticks(self) -> list[float]:
        if self.axis != "linear":
            factor, value = (10, 10 ** math.ceil(math.log10(self.low))) if self.axis == "log10" else (4, self.low)
            return [value * factor**i for i in range(64) if value * factor**i <= self.high * 1.001]
        step = 10 ** math.floor(math.log10(self.high - self.low))
        step /= 2 if (self.high - self.low) / step < 3 else 1
        step *= 2 if (self.high - self.low) / step > 7 else 1
        places = range(math.ceil(self.low / step - 1e-9), math.floor(self.high * 1.0001 / step) + 1)
        return [i / round(1 / step) if step < 1 else i * step for i in places]  # 3 / 20 is 0.15, and 3 * 0.05 is not


def text_at(x: float, y: float, anchor: str, html: str, kind: str = "quiet") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html}</text>\n'


def plain(html: str) -> str:
    """Returns a name without markup, which SVG does not support."""
    return re.sub("<[^>]*>", "", html)


def legend(name: str) -> list[str]:
    """Returns the lines of a legend with several names, broken after commas."""
    rest, lines = plain(name), []
    while len(rest.encode()) > NAME_LETTERS and (comma := rest.rfind(", ", 0, NAME_LETTERS + 2)) >= 0:
        lines.append(rest[: comma + 1])
        rest = rest[comma + 2 :]
    return [*lines, rest]


def axes(chart: dict, x: Scale, y: Scale) -> str:
    svg = ""
    for tick in y.ticks():
        svg += f'<path class="grid" d="M{LEFT:.1f} {y(tick):.1f}H{WIDTH - RIGHT:.1f}"/>\n'
        svg += text_at(LEFT - 6, y(tick) + 4, "end", compact(tick))
    for tick in chart.get("ticks") or x.ticks():
        svg += text_at(x(tick), HEIGHT - BOTTOM + 16, "middle", compact(tick))
    svg += text_at((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "middle", escape(chart["x"]))
    return svg + text_at(8, TOP - 18, "start", escape(chart["y"]))


def points(series: dict) -> list[tuple[float, float, float]]:
    """Returns x, y and the half-length of the bar of the points that have a number."""
    spread = series.get("spread") or [0] * len(series["x"])
    return [(x, y, reach) for x, y, reach in zip(series["x"], series["y"], spread) if y is not None]


def figure(chart: dict, styles: dict) -> str:
    """Returns an SVG of a chart in the form of tools/report/charts.json, whose series hold HTML names, numbers x and y, and more."""
    drawn = [(x, [y - reach, y + reach]) for series in chart["series"] for x, y, reach in points(series)]
    x = Scale([x for series in chart["series"] for x in series["x"]], chart.get("x_axis", "linear"), LEFT, WIDTH - RIGHT)
    zero = [0.0] if chart.get("from_zero") else []
    y = Scale(zero + [end for _, ends in drawn for end in ends], chart.get("y_axis", "linear"), HEIGHT - BOTTOM, TOP)
    # Names are below the chart, because curves may be anywhere and names may be long.
    names = [legend(series["name"]) for series in chart["series"]]
    title, palette = plain(chart["title"]), (ROOT / "tools/report/page.css").read_text().partition("* {")[0]
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + LINE * sum(map(len, names))}" role="img">\n'
        f'<title>{title}</title>\n<style>\n{palette}{STYLE}</style>\n<rect width="100%" height="100%"/>\n'
    )
    svg += text_at(8, 18, "start", title, "title") + axes(chart, x, y)
    below = HEIGHT + LINE * 0.6
    for i, series in enumerate(chart["series"]):
        place = series.get("colour", i)
        colour, dashes = styles["lines"][place] if place >= 0 else (styles["neutral"], styles["reference"])
        dashes = styles["reference"] if series.get("reference") else dashes
        line = f'style="stroke:{colour}" stroke-dasharray="{" ".join(map(str, dashes))}"'
        path = "L".join(f"{x(at):.1f} {y(value):.1f}" for at, value, _ in points(series))
        svg += f'<path class="line" d="{path and "M" + path}" {line}/>\n'
        if series.get("spread"):
            bars = "".join(f"M{x(at):.1f} {y(value - reach):.1f}V{y(value + reach):.1f}" for at, value, reach in points(series))
            svg += f'<path d="{bars}" style="stroke:{colour}"/>\n'
        svg += f'<path class="line" d="M8 {below - 4:.1f}h26" {line}/>\n'
        for name in names[i]:
            svg += text_at(42, below, "start", name, "name")
            below += LINE
    return svg + "</svg>\n"


def declared(name: str, **changes: object) -> dict:
    """Returns the chart of that name in the report's declarations, without series."""
    return json.loads((ROOT / "tools/report/charts.json").read_text())[name] | {"series": []} | changes


def training() -> dict[str, dict]:
    """Two trainings, without and with QK-clip."""
    charts = {name: declared(f"{name} in training") for name in ("logits", "entropy", "loss")}
    for run in record("qk-clip")["runs"]:
        name = "without QK-clip" if run["tau"] is None else f"QK-clip, tau = {run['tau']}"
        steps: dict[int, list[dict]] = defaultdict(list)
        for row in run["rows"]:
            steps[row["step"]].append(row)
        ends = range(AVERAGED, len(run["losses"]) + 1, AVERAGED)
        for chart, x, y in (
            ("logits", list(steps), [max(row["max_logit"] for row in rows) for rows in steps.values()]),
            ("entropy", list(steps), [fmean(row["entropy"] for row in rows) for rows in steps.values()]),
            ("loss", list(ends), [fmean(run["losses"][end - AVERAGED : end]) for end in ends]),
        ):
            charts[chart]["series"].append({"name": name, "x": x, "y": y})
    return {f"training-{name}": chart for name, chart in charts.items()}


def head_bases() -> dict:
    found = record("head-bases-smollm2")
    chart = {"title": "Entropy of the heads of SmolLM2-135M", "x": "keys a row sees", "x_axis": "log2", "y": "entropy, nats, mean of heads",
             "from_zero": True, "series": []}  # fmt: skip
    for name, title in theory.HEAD_RULES.items():
        means = [fmean(theory.of_heads(found, heads)) for heads in found["entropy"][name]]
        chart["series"].append({"name": title, "x": found["lengths"], "y": means})
    return chart


def errors(results: dict, differentiable: list[str]) -> dict:
    """Measured errors over their budgets, on AVX-512 if the machine has it."""
    target = max(results["output f32"], key=lambda name: (name.startswith("AVX"), name))
    chart = {"title": "Errors over their budgets", "x": "share of problems (%)", "y": f"worst error over budget, f32, {target}",
             "from_zero": True, "series": []}  # fmt: skip
    for name in ("output", "dq", "dk", "dv", *differentiable):
        quantiles = results[f"{name} f32"][target]["quantiles"]
        chart["series"].append({"name": name, "x": [100 * i / (len(quantiles) - 1) for i in range(len(quantiles))], "y": quantiles})
    return chart


def pooled(study: dict) -> dict:
    """Leads of masked RoPE models trained with base 512, finished ones with 64, and hidden far keys."""
    names = {studies.TRAINED: "trained with base 512", studies.RESCALED: "standard, rescaled by base 64",
             studies.NEAR: "standard, near keys only"}  # fmt: skip
    chart = {"title": "Lead over standard, RoPE", "x": "length n, tokens", "x_axis": "log2", "y": "points of accuracy", "from_zero": True,
             "series": []}  # fmt: skip
    for row, name in names.items():
        leads = studies.named([part["lead"] for part in study["pooled"] if part["cells"][0].startswith("rope")], row)
        spread = [0 if lead["high"] is None else (lead["high"] - lead["low"]) / 2 for lead in leads]
        chart["series"].append({"name": name, "x": [x["length"] for x in leads], "y": [x["mean"] for x in leads], "spread": spread})
    return chart | {"ticks": chart["series"][0]["x"]}


def notes_size(size: studies.NotesSize) -> dict:
    chart = declared("accuracy", title="Accuracy beyond the trained length of 64; dotted: the standard scale", from_zero=True)
    rule = studies.TRAINED[0]
    models = {"The note's model": (studies.NOTE[rule], studies.NOTE["standard"])}
    for model, cell in ((f"A model of the {size.name}", size.cell), ("Small models, mean of five", None)):
        accuracies = [studies.accuracy_of(cell, row) if cell else studies.pooled_accuracy(size.small, row)
                      for row in (studies.TRAINED, studies.STANDARD)]  # fmt: skip
        models[model] = accuracies[0], accuracies[1]
    for colour, (model, accuracies) in enumerate(models.items()):
        for name, found in zip(("trained with log_512 n", "standard scale"), accuracies):
            chart["series"].append({"name": f"{model}, {name}".replace("'", "&#39;"), "x": list(found), "y": list(found.values()),
                                    "colour": colour, "reference": name == "standard scale"})  # fmt: skip
    return chart | {"ticks": chart["series"][0]["x"]}


def figures(numbers: dict) -> dict[str, str]:
    """Returns the figures by path."""
    study = numbers["studies"]["study"]
    gains = studies.gain_charts(study)
    charts = numbers["charts"] | training() | gains | {
        "error-over-budget": errors(record("numerics")["error_over_budget"], numbers["differentiable"]),
        "notes-size": notes_size(studies.NotesSize(numbers["studies"])),
        "entropy-heads": head_bases(),
        "rope-pooled": pooled(study),
    }  # fmt: skip
    return {f"docs/figures/{name}.svg": figure(chart, numbers["styles"]) for name, chart in charts.items()}
