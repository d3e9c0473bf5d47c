"""Tables of calibrated gains: the study of calibrate-*.json, one file a model, and the protocol's models."""

import json
from collections import defaultdict
from statistics import correlation, fmean

from text import ROOT, decimal, from_to, interval, record, signed, table, with_interval

DECIMALS = 4  # some differences that tests decide are below a thousandth
METHODS = ("entropy", "none", "yarn", "logn", "best")


def flat(numbers: list) -> list[float]:
    return [x for item in numbers for x in (flat(item) if isinstance(item, list) else [float("nan") if item is None else item])]


def gains(studies: list[dict]) -> list[str]:
    rows = []
    for study in studies:
        for text in study["texts"]:
            for stretch, found in text["gains"].items():
                others = [other["gains"][stretch]["by_head"] for other in study["texts"] if other is not text]
                agreement = ", ".join(decimal(correlation(flat(found["by_head"]), flat(other)), 2) for other in others)
                rows.append([study["model"], text["text"], stretch, decimal(found["single"], 3), decimal(found["mean_by_head"], 3),
                             str(len(found["steps"]) - 1), agreement])  # fmt: skip
    return table(["model", "text", "stretch", "ln gain", "mean of head gains", "Newton steps",
                  "correlation of head gains with those of the other texts"], rows)  # fmt: skip


def heads(studies: list[dict]) -> list[str]:
    """The mean entropy of all heads at two positions; "–" if the passages end before it."""
    rows = []
    for study in studies:
        for text in study["texts"]:
            slopes, trained = flat(text["heads"]["slope"]), min(text["heads"]["unstretched"])
            positions = trained, str(int(trained) * 3 // 2)
            counts = [len(slopes), sum(slope > 0.5 for slope in slopes), sum(slope < 0.2 for slope in slopes)]
            for state, entropies in sorted(text["heads"].items()):
                if state != "slope":
                    means = [decimal(fmean(flat(entropies[n])), 2) if n in entropies else "–" for n in positions]
                    rows.append([study["model"], text["text"], *map(str, counts), state, *means])
    return table(["model", "text", "heads", "dH/d ln n > 0.5", "< 0.2", "RoPE", "H at the trained length", "H at 1.5 times that"], rows)


def loss(difference: dict, against: str) -> str:
    """Returns the loss of the reference, or the difference of another method with its errors over blocks and over passages."""
    if difference["method"] == against:
        return f"{decimal(difference['mean'], 3)} nats"
    errors = [difference["se"], *([difference["se_passages"]] if difference["se_passages"] is not None else [])]
    return f"{signed(difference['difference'], 3)} ± {', '.join(decimal(error, 3) for error in errors)}"


def losses(studies: list[dict], against: str) -> list[str]:
    """Returns one table a model, because models have different bins."""
    lines: list[str] = []
    for study in studies:
        by_method: dict[str, list[str]] = {}
        head: list[str] = []
        for differences in (group[against] for group in study["nll"] if against in group):
            reference = differences[0]["method"]
            head = head or [study["model"], *(from_to(x["from"], x["to"]) for x in differences if x["method"] == reference)]
            for x in differences:
                by_method.setdefault(x["method"], [x["method"]]).append(loss(x, reference))
        lines += [*([""] if lines else []), *table(head, by_method.values())]
    return lines


def minus(ours: list[float], theirs: list[float]) -> list[float]:
    return [a - b for a, b in zip(ours, theirs)]


def lead(test: dict) -> str:
    """Returns a lead, bold if the corrected test is significant."""
    words = f"{signed(test['mean'], DECIMALS)} {interval(test['low'], test['high'], DECIMALS)}"
    return f"**{words}**" if test.get("called") else words


def by_kind(documents: dict, beyond: dict) -> str:
    """Exploratory, because documents of one kind may be correlated: "scripture-isaiah" is of the kind "scripture"."""
    kinds = defaultdict(list)
    for name, change in zip(documents, minus(beyond["entropy"], beyond["none"])):
        kinds[name.split("-")[0]].append(change)
    return with_interval([fmean(changes) for _, changes in sorted(kinds.items())], DECIMALS)


def stretches(models: dict) -> list[tuple[str, dict, str, dict]]:
    return [(name, model, stretch, found) for name, model in models.items() for stretch, found in model["stretches"].items()]


def leads(found: dict) -> list[str]:
    rows = []
    for _, model, stretch, x in stretches(found["models"]):
        tests, lengths = x["tests"], x["lengths"]
        rows.append([model["what"], stretch, from_to(lengths[1], lengths[-1]), decimal(x["log_gain"], 3), decimal(x["best"], 2),
                     decimal(fmean(x["beyond"]["entropy"]), 3), *(lead(tests[to]) for to in ("none", "yarn", "logn", "best")),
                     str(tests["none"]["df"]), by_kind(found["documents"], x["beyond"])])  # fmt: skip
    return table(["model", "stretch", "positions", "ln gain", "best of the grid", "nats", "to none", "to YaRN's", "to logn",
                  "to the best: equivalent?", "df", "to none, by kind"], rows)  # fmt: skip


def positions(models: dict) -> list[str]:
    """Each method's mean loss in a bin of positions; that of the best constant once if it is no gain."""
    rows = []
    for name, _, stretch, found in stretches(models):
        for i, ends in enumerate(zip(found["lengths"], found["lengths"][1:])):
            means = {method: decimal(fmean(document[i] for document in found["losses"][method]), 3) for method in METHODS}
            means["best"] = means["best"] if found["best"] else "–"
            rows.append([name, stretch, from_to(*ends), *means.values()])
    return table(["model", "stretch", "positions", *METHODS], rows)


def answers(models: dict) -> list[str]:
    rows = []
    for name, _, stretch, found in stretches(models):
        nll = found["answers"]["nll"]
        measured = [fmean(document) for document in nll["entropy"]]
        for method, documents in nll.items():
            if method != "best" or found["best"]:
                losses = " ".join(decimal(fmean(column), 2) for column in zip(*documents))
                difference = minus(measured, [fmean(document) for document in documents])
                rows.append([name, stretch, method, losses, "–" if method == "entropy" else with_interval(difference, DECIMALS)])
    return table(["model", "stretch", "method", "loss of an answer, nearest to farthest line", "measured gain minus it"], rows)


def tuned(models: dict) -> list[str]:
    """Exploratory in part: the protocol does not test tuned factors against the best constant."""
    stretch = json.loads((ROOT / "bench/models/protocol.json").read_text())["tuning"]["stretch"]
    lines = []
    for name, model in models.items():
        if tuning := model["tuning"]:
            constants = minus(tuning["beyond"]["tuned constant"], model["stretches"][str(stretch)]["beyond"]["best"])
            lines.append(f"- {name}: log n to constant, tuned for each head, {lead(tuning['test'])} nats; the constants of heads to "
                         f"the best single one (exploratory), {with_interval(constants, DECIMALS)}.")  # fmt: skip
    return lines


def tables() -> dict[tuple[str, str], list[str]]:
    studies = [json.loads(path.read_text()) for path in sorted(ROOT.glob("docs/results/calibrate-*.json"))]
    found = record("calibration-models")
    of = found["models"]
    page = "docs/calibrate-tables.md"
    return {
        (page, "calibration-gains"): gains(studies),
        (page, "calibration-heads"): heads(studies),
        (page, "calibration-losses"): losses(studies, "no gain"),
        (page, "calibration-optimum"): losses(studies, "one gain"),
        (page, "calibration-models"): [*leads(found), "", *tuned(of), "", *positions(of), "", *answers(of)],
    }
