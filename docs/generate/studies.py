"""Tables of the laboratory: the study, declared experiments, and the note's experiment by model size."""

import math
from statistics import fmean, linear_regression
from typing import Any

from text import decimal, interval, record, signed, table, with_interval

EXPERIMENTS = ("notes-size", "length-or-sharpness", "bias-learning-rate", "scales-for-the-gradient", "line-to-the-note")
NAMES = ("study", "note-pilot", *EXPERIMENTS)
NOTE = {  # accuracies of Su (2021) by scale, for masked language models trained at 64 tokens
    "standard": {64: 43.27, 128: 36.53, 256: 23.02, 512: 15.12, 1024: 11.54},
    "entropy_invariant(base=512)": {64: 43.11, 128: 41.17, 256: 34.04, 512: 20.15, 1024: 13.58},
}
STANDARD, TRAINED = ("standard", "trained"), ("entropy_invariant(base=512)", "trained")
RESCALED, NEAR = ("entropy_invariant(base=64)", "rescaled"), ("standard", "near")
SCALES = {STANDARD: "1/sqrt(d)", TRAINED: "log_512(n)/sqrt(d)", RESCALED: "1/sqrt(d), then times log_64(n)"}
GAINS = {TRAINED: "trained with log_512 n", RESCALED: "rescaled by log_64 n", NEAR: "near keys only"}
NOTES_SIZE = 6
NOTHING_YET = ["No two seeds of a cell are done yet: there is no lead to show."]

Study = dict[str, Any]
Name = tuple[str, str]  # of a row: its rule and kind


def trained_cells(study: Study) -> list[dict]:
    return [cell for cell in study["cells"] if cell["done"]]


def head(cell: dict, *before: str) -> list[str]:
    return [*before, *(f"n = {length}" for length in cell["lengths"])]


def grid(study: Study) -> list[str]:
    rows = [[cell["name"], f"`{cell['options']}`", f"{cell['done']} of {cell['planned']}"] for cell in study["cells"]]
    return [study["progress"], "", *table(["cell", "options", "trainings done"], rows)]


def leads(study: Study, metric: str) -> list[str]:
    """A row for each model of a cell. A single pair of seeds has no error and is left out."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for cell in study["cells"]:
        for lead in cell["leads"]:
            if lead["metric"] == metric and lead["seeds"] >= 2:
                row = [cell["name"], f"`{lead['name']}`", str(lead["seeds"])]
                rows.setdefault((cell["name"], lead["rule"], lead["kind"]), row).append(lead["words"])
    return table(head(trained_cells(study)[0], "cell", "rule", "seeds"), rows.values()) if rows else NOTHING_YET


def pooled(study: Study) -> list[str]:
    rows: dict[tuple, list[str]] = {}
    for metric, unit in (("accuracy", "points"), ("cross_entropy", "nats")):
        for part in study["pooled"]:
            lead, cells = part["lead"], ", ".join(part["cells"])
            if lead["metric"] == metric:
                row = [f"`{lead['name']}`", unit, cells, str(lead["seeds"])]
                rows.setdefault((lead["name"], unit, cells), row).append(lead["words"])
    return table(head(study["cells"][0], "rule", "in", "cells", "seeds"), rows.values()) if rows else NOTHING_YET


def best_gain(curves: dict, length: int) -> float:
    accuracy = curves["accuracy"][str(length)]
    return curves["gain"][accuracy.index(max(accuracy))]


def best_gains(study: Study) -> list[str]:
    """A cell's best gain by length, its range over seeds, and its lead over 1 in points."""
    rule, rows = "entropy_invariant(base=64)", []
    cells = [cell for cell in trained_cells(study) if cell["gains"]]
    if not cells:
        return ["No curve is measured yet."]
    rows.append([f"`{rule}`", "–", *(f"{cells[0]['gains']['of_rules'][rule][str(n)]:.2f}" for n in cells[0]["lengths"])])
    for cell in cells:
        curves, row = cell["gains"], [cell["name"], str(len(cell["gains_of_seeds"]))]
        for n in cell["lengths"]:
            accuracy, best = curves["accuracy"][str(n)], [best_gain(seed, n) for seed in cell["gains_of_seeds"]]
            lead = signed(max(accuracy) - accuracy[curves["gain"].index(1)], 1)
            row.append(f"{best_gain(curves, n):.2f} ({min(best):.2f} to {max(best):.2f}), {lead}")
        rows.append(row)
    return table(head(cells[0], "cell", "seeds"), rows)


def numbers_of(study: Study) -> list[str]:
    rows = []
    for cell in trained_cells(study):
        for row in cell["rows"]:
            rows.append([cell["name"], f"`{row['title']}`", str(len(row["seeds"]))])
            for n in map(str, cell["lengths"]):
                rows[-1].append(f"{decimal(row['accuracy'][n], 2)} %, {decimal(row['cross_entropy'][n], 3)} nats, "
                                f"H {decimal(row['entropy'][n], 2)}, distance {decimal(row['distance'][n], 1)}, "
                                f"far {decimal(row['share_beyond'][n], 1)} %")  # fmt: skip
        rows.append([cell["name"], "uniform attention", "–", *(f"H {decimal(entropy, 2)}" for entropy in cell["uniform"])])
    return table(head(trained_cells(study)[0], "cell", "row", "seeds"), rows) if rows else ["No training is done yet."]


def gain_charts(study: Study) -> dict[str, dict]:
    """Returns charts of accuracy against constant gains, by the names of their files."""
    cells = sorted((cell for cell in trained_cells(study) if cell["gains"]), key=lambda cell: cell["name"])
    return {f"gains-{cell['name']}": cell["chart"] | {"title": f"{cell['chart']['title']}, {cell['name']}"} for cell in cells}


def family(tests: list[dict]) -> list[str]:
    rows = []
    for test in tests:
        lead = test["lead"]
        text, digits = lead.get("text"), 1 if lead["metric"] == "accuracy" else 3
        by_the_text = interval(text["low"], text["high"], digits) if text else "–"
        rows.append([test["hypothesis"], test["of"], test["over"], str(lead["length"]), lead["words"], str(lead["df"]),
                     decimal(lead["p"], 4), decimal(lead["adjusted_p"], 4), by_the_text])  # fmt: skip
    return table(["hypothesis", "of", "over", "n", "lead", "df", "p", "adjusted", "by the text alone"], rows)


def declared_tests(studies: dict[str, Study]) -> list[str]:
    lines: list[str] = []
    for name in EXPERIMENTS:
        if studies[name]["complete"]:
            lines += ["", f"### {name}", "", *family(studies[name]["primary"])]
            if studies[name]["secondary"]:
                lines += ["", "The secondary family:", "", *family(studies[name]["secondary"])]
    return lines


def experiments(studies: dict[str, Study]) -> list[str]:
    link = "[{0}](../tools/lab/experiments/{0}.json)".format
    rows = [[link(name), studies[name]["question"], studies[name]["progress"]] for name in EXPERIMENTS]
    return table(["experiment", "question", "trainings"], rows)


def accuracy_of(cell: dict, name: Name) -> dict[int, float]:
    """Returns the mean over the seeds; empty without that row."""
    rows = [row for row in cell["rows"] if (row["rule"], row["kind"]) == name]
    return {n: rows[0]["accuracy"][str(n)] for n in cell["lengths"]} if rows else {}


def pooled_cells(small: Study) -> list[str]:
    """Returns the masked RoPE cells that the study averages."""
    found = (part["cells"] for part in small["pooled"] if (part["lead"]["rule"], part["lead"]["kind"]) == TRAINED)
    return next(cells for cells in found if cells[0].startswith("rope"))


def pooled_accuracy(small: Study, name: Name) -> dict[int, float]:
    of_cells = [accuracy_of(cell, name) for cell in small["cells"] if cell["name"] in pooled_cells(small)]
    return {n: fmean(accuracy[n] for accuracy in of_cells) for n in of_cells[0]}


def named(leads: list[dict], name: Name) -> list[dict]:
    return [lead for lead in leads if lead["metric"] == "accuracy" and (lead["rule"], lead["kind"]) == name]


class NotesSize:
    """The note's experiment by model size. Until it is complete, the pilot's model has the note's size."""

    def __init__(self, studies: dict[str, Study]):
        complete = studies["notes-size"]["complete"]
        self.file, self.name = ("notes-size", "note's size, 5 seeds") if complete else ("note-pilot", "note's size, pilot of one seed")
        self.cell, self.small = studies[self.file]["cells"][0], studies["study"]
        self.small_name = f"small, {len(pooled_cells(self.small))} cells"

    def accuracies(self) -> list[str]:
        models = [("the note's", NOTE["standard"], STANDARD), ("the note's", NOTE[TRAINED[0]], TRAINED),
                  *((self.name, accuracy_of(self.cell, row), row) for row in SCALES),
                  *((self.small_name, pooled_accuracy(self.small, row), row) for row in (STANDARD, TRAINED))]  # fmt: skip
        rows = [[model, SCALES[row], *(decimal(x, 1) for x in found.values())] for model, found, row in models]
        return table(["model", "scale", *map(str, NOTE["standard"])], rows)

    def gains(self) -> list[str]:
        rows = [["the note's", GAINS[TRAINED], *(signed(x, 1) for x in gains_of_the_note())]]
        of_pool = [part["lead"] for part in self.small["pooled"] if part["cells"] == pooled_cells(self.small)]
        for row, what in GAINS.items():
            for model, found in ((self.name, named(self.cell["leads"], row)), (self.small_name, named(of_pool, row))):
                if found:
                    rows.append([model, what, *map(words_of, found)])
        return table(["model", "what it gains over 1/sqrt(d)", *map(str, NOTE["standard"])], rows)

    def entropies(self) -> list[str]:
        """Entropy of each layer at each length, mean over the seeds."""
        cell = record(self.file)["cells"][self.cell["name"]]
        rows = []
        for name, scale in SCALES.items():
            seeds = [row for found in cell["records"] for row in found["rows"] if (row["rule"], row["kind"]) == name]
            for i, n in enumerate(self.cell["lengths"] if seeds else []):
                layers = [fmean(x) for x in zip(*(row["entropy_by_layer"][i] for row in seeds))]
                rows.append([scale, str(n), *(decimal(x, 2) for x in layers), decimal(fmean(layers), 2)])
        columns = [f"layer {layer}" for layer in range(1, len(rows[0]) - 2)]
        return [f"{self.name}, nats:", "", *table(["scale", "n", *columns, "mean"], rows)]

    def tables(self) -> list[str]:
        texts = "Accuracy in percent, on texts that differ from row to row:"
        return [texts, "", *self.accuracies(), "", "Gains in points of accuracy:", "", *self.gains()]


def words_of(lead: dict) -> str:
    return signed(lead["mean"], 1) + ("" if lead.get("reason") else f" {interval(lead['low'], lead['high'], 1)}")


def gains_of_the_note() -> list[float]:
    return [NOTE[TRAINED[0]][n] - accuracy for n, accuracy in NOTE["standard"].items()]


def gains_of(cell: dict, n: int) -> dict[int, float]:
    """Returns the gains of log_512 n by seed, in points."""

    def accuracies(name: Name) -> dict[int, float]:
        for row in cell["rows"]:
            if name in [(x["rule"], x["kind"]) for x in (row, *row.get("also", []))]:
                return {seed["seed"]: seed["accuracy"][str(n)] for seed in row["seeds"]}
        return {}

    standard, rule = accuracies(STANDARD), accuracies(TRAINED)
    return {seed: rule[seed] - standard[seed] for seed in sorted(rule) if seed in standard}


def at_the_notes_size(values: list[float]) -> float:
    """Returns the value at the note's size of the least-squares line in ln k through values by k >= 1."""
    slope, at_one = linear_regression([math.log(k) for k in range(1, len(values) + 1)], values)
    return at_one + slope * math.log(NOTES_SIZE)


def line(study: Study) -> list[str]:
    """Accuracies and gains of log_512 n by model size, and a line extended to the note's size."""
    scales = {STANDARD: "standard", TRAINED: "log_512 n"}
    rows = [["the note's", scale, *(decimal(x, 2) for x in NOTE[name[0]].values())] for name, scale in scales.items()]
    for cell in study["cells"] if study["complete"] else []:
        rows += [[cell["name"], scale, *(decimal(x, 2) for x in accuracy_of(cell, name).values())] for name, scale in scales.items()]
    lengths = list(NOTE["standard"])
    lines = [*table(["model", "scale", *map(str, lengths)], rows), ""]
    if not study["complete"]:
        return [*lines, study["progress"]]
    gains = [["the note's", *(signed(x, 1) for x in gains_of_the_note())]]
    found = [{n: gains_of(cell, n) for n in lengths} for cell in study["cells"]]
    gains += [[cell["name"], *(with_interval(list(x.values()), 1) for x in of.values())] for cell, of in zip(study["cells"], found)]
    gains.append(["k = 6, by a straight line in ln k"])
    for n in lengths:
        everywhere = set.intersection(*(set(of[n]) for of in found))
        gains[-1].append(with_interval([at_the_notes_size([of[n][seed] for of in found]) for seed in sorted(everywhere)], 1))
    return [*lines, *table(["log_512 n over the standard scale", *map(str, lengths)], gains), "", study["progress"]]


def tables(numbers: dict) -> dict[tuple[str, str], list[str]]:
    studies = numbers["studies"]
    study, size, page = studies["study"], NotesSize(studies), "docs/laboratory-tables.md"
    figures = [f"![{name}](figures/{name}.svg)" for name in gain_charts(study)]
    return {
        (page, "study-grid"): grid(study),
        (page, "study-pooled"): pooled(study),
        (page, "study-leads"): leads(study, "accuracy"),
        (page, "study-leads-in-nats"): leads(study, "cross_entropy"),
        (page, "study-numbers"): numbers_of(study),
        (page, "study-best-gains"): best_gains(study),
        (page, "study-gains"): figures or ["No curve is measured yet."],
        (page, "declared-tests"): declared_tests(studies),
        (page, "notes-entropy"): size.entropies(),
        ("docs/laboratory.md", "notes-size"): size.tables(),
        ("docs/laboratory-protocol.md", "experiments"): experiments(studies),
        ("docs/seeds.md", "line"): line(studies["line-to-the-note"]),
    }
