"""Verdicts on readings: paired t over documents, equivalence within a margin, Holm's correction within a model."""

import math

from isentrope.models.student import one_sided_p, quantile

LEVEL = 0.05


def paired(differences):
    """Returns mean, standard error and degrees of freedom. The error is None for fewer than 3 or equal differences."""
    count = len(differences)
    mean = sum(differences) / count
    square = sum((x - mean) ** 2 for x in differences)
    error = math.sqrt(square / (count - 1) / count) if count >= 3 and square > 0 else None
    return mean, error, count - 1


def difference(losses, other_losses, margin=None):
    """Returns the difference of two lists of losses by document: mean, degrees of freedom, 95 % interval, and p.

    p is that of a difference or, with a margin, of equivalence within it."""
    mean, error, df = paired([a - b for a, b in zip(losses, other_losses, strict=True)])
    if error is None:
        return {"mean": mean, "df": df, "low": None, "high": None, "p": 1.0}
    reach = quantile(df) * error
    if margin is None:
        p = 2 * one_sided_p(abs(mean) / error, df)
    else:
        p = max(one_sided_p((margin + mean) / error, df), one_sided_p((margin - mean) / error, df))
    return {"mean": mean, "df": df, "low": mean - reach, "high": mean + reach, "p": p}


def holm(tests):
    """Sets `called` on each test by Holm's correction at LEVEL."""
    ordered = sorted(tests, key=lambda test: test["p"])
    called = True
    for i, test in enumerate(ordered):
        called = called and test["p"] <= LEVEL / (len(ordered) - i)
        test["called"] = called


def judge(models, protocol):
    """Adds differences and verdicts to each model's readings, which must be complete."""
    tuned = []
    for model in models.values():
        tests = []
        for stretch in model["stretches"].values():
            losses = stretch["beyond"]
            stretch["tests"] = {
                against: difference(losses["entropy"], losses[against], protocol["margin"] if against == "best" else None)
                for against in protocol["hypotheses"]
            }
            tests += stretch["tests"].values()
        holm(tests)
        if tuning := model["tuning"]:
            tuning["test"] = difference(tuning["beyond"]["tuned logn"], tuning["beyond"]["tuned constant"])
            tuned.append(tuning["test"])
    if sum(model["tuning"] is not None for model in models.values()) == len(protocol["tuning"]["models"]):
        holm(tuned)
