"""Tables of docs/models.md, from the verdicts of tests/python/sweep/sweep.py."""

from collections import Counter
from itertools import groupby

from text import record, table

VERDICTS = {
    "right": "gives the eager attention's numbers",
    "right but for padding": "gives other numbers where rows of padding, which see no key, reach others",
    "refused": "raises an error that says to use eager",
    "wrong": "gives other numbers",
    "no attention": "has an attention of its own, which stays",
    "not made": "was not tested",
    "part": "is a part of another family",
}


SCALES = {
    "agrees": "the same, with the factors measured on queries and keys",
    "not measured": "the passed one is the same",
    "not known": "`model_rule` does not know the family",
}


def counts(record: dict[str, dict[str, dict]], head: str, key: str, meanings: dict[str, str]) -> list[str]:
    """Returns how many families of each version of transformers have each word, in front of a colon, as their key."""
    found = [Counter(x.get(key, "").partition(":")[0] for x in verdicts.values()) for verdicts in record.values()]
    rows = [[f"{word}: {meaning}", *(str(of[word]) for of in found)] for word, meaning in meanings.items()]
    return table([head, *(f"transformers {version}" for version in record)], rows)


def not_measured(record: dict[str, dict[str, dict]]) -> list[str]:
    reasons = {name: x["scale"].partition(": ")[2] for verdicts in record.values() for name, x in verdicts.items()
               if x.get("scale", "").startswith("not measured")}  # fmt: skip
    return table(["not measured", "why"], [[f"`{name}`", why] for name, why in sorted(reasons.items())])


def reasons(record: dict[str, dict[str, dict]], verdict: str) -> list[str]:
    rows = [[f"`{name}`", version, shortened(x.get("why", ""))] for version in record
            for name, x in record[version].items() if x["verdict"] == verdict]  # fmt: skip
    return table(["family", "transformers", "why"], rows) if rows else ["None."]


def left_out(record: dict[str, dict[str, dict]]) -> list[str]:
    """Cases of families that the eager attention cannot judge, with the same words in one row."""
    rows = []
    for version in record:
        for name, x in record[version].items():
            raised = [(words, case) for case, words in x.get("cases", {}).items() if str(words).startswith(("eager raises", "as under sdpa"))]
            for words, cases in groupby(sorted(raised), lambda pair: pair[0]):
                rows.append([f"`{name}`", version, "; ".join(case for _, case in cases), shortened(words)])
    return table(["family", "transformers", "cases", "why"], rows) if rows else ["None."]


def shortened(why: str) -> str:
    words = why.replace("`", "'").replace("<", "&lt;")
    return words if len(words) <= 160 else words[:157] + "..."


def names(record: dict[str, dict[str, dict]], verdict: str) -> list[str]:
    """Families of the newest transformers, a row for each first letter."""
    newest = list(record)[-1]
    architectures = sorted(name for name, x in record[newest].items() if x["verdict"] == verdict)
    rows = [[letter, ", ".join(f"`{name}`" for name in group)] for letter, group in groupby(architectures, lambda name: name[0])]
    return table(["", "families"], rows)


def tables() -> dict[tuple[str, str], list[str]]:
    found = record("models")
    by_mark = {"not measured": not_measured(found), "left out": left_out(found)}
    by_mark["counts"] = counts(found, "verdict", "verdict", VERDICTS)
    by_mark["scales"] = counts(found, "scale that `model_rule` tells", "scale", SCALES)
    by_mark |= {verdict: names(found, verdict) for verdict in ("right", "no attention")}
    by_mark |= {verdict: reasons(found, verdict) for verdict in ("wrong", "right but for padding", "refused", "not made")}
    return {("docs/models.md", mark): lines for mark, lines in by_mark.items()}
