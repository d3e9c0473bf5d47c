"""Tables of rules and of theory. Numbers that a command of isentrope prints are taken from its output."""

import math
import shlex
from collections.abc import Callable
from statistics import fmean

from text import compact, decimal, record, signed, table

Run = Callable[..., dict]


def first(found: dict, name: str) -> float:
    return found["values"][0][name]


# By table: the kind of number, what it is, what the note has, that as a number if it is one, the command that prints ours, and
# where. The note may have a formula, a range or a word. "by construction" is true by definition of the quantity.
NOTE: dict[str, list[tuple[str, str, str, float | None, str, Callable[[dict], float]]]] = {
    "variance": [
        ("by construction", "Var(q.k) / d for unit variances", "1", 1, "theory variance --dim 64", lambda x: 1),
        ("formula", "the scale, 1/sqrt(d), at d = 64", "1/sqrt(d)", None, "scale standard --dim 64", lambda x: first(x, "lambda")),
    ],
    "entropy": [
        ("formula", "kappa = sqrt(d)/ln 512 at d = 64", "sqrt(d)/ln 512", None, "theory entropy --dim 64", lambda x: x["kappa"]),
        ("value", "loss of entropy for each lambda d", "0.24", 0.24, "theory entropy", lambda x: x["laplace"]),
        ("value", "lambda d / ln n that cancels it", "1/0.24", 1 / 0.24, "theory entropy", lambda x: 1 / x["laplace"]),
        ("by construction", "log_512 n at n = 512", "1", 1, "scale 'entropy_invariant(base=512)' --lengths 512",
         lambda x: first(x, "factor")),
        ("formula", "ln n at n = 20, over the standard scale", "unproblematic", None, "scale log_length --lengths 20",
         lambda x: first(x, "factor")),
    ],
    "dimension": [
        ("value", "8 ln n at n = 100000", "92", 92, "theory dimension --lengths 100000", lambda x: first(x, "dimension")),
        ("value", "8 ln 512", "50", 50, "theory dimension --lengths 512", lambda x: first(x, "dimension")),
        ("formula", "lambda = d/ln 512 at d = 64", "d/ln 512", None, "theory dimension --dim 64", lambda x: x["lambda"]),
        ("by construction", "d_n at n = 512 for d = 64", "64", 64, "theory dimension --dim 64 --lengths 512",
         lambda x: first(x, "matched")),
        ("value", "n > 8.33 log N: 2/0.24", "8.33", 8.33, "theory dimension", lambda x: x["pair_factor"]),
    ],
    "gradient": [
        ("fit", "c of alpha* = c sqrt(ln n), normal scores, n = 40 ... 20000", "0.84", 0.84, "theory gradient --scores normal",
         lambda x: x["fit"]["c"]),
        ("formula", "keys at which alpha* reaches 2", "2 ~ 3", None, "theory gradient --between 2,3", lambda x: x["n"][0]),
        ("formula", "keys at which alpha* reaches 3", "2 ~ 3", None, "theory gradient --between 2,3", lambda x: x["n"][1]),
        ("formula", "keys at which the compromise 2.5 is the optimum", "2.5", None, "theory gradient --between 2.5,2.5",
         lambda x: x["n"][0]),
        ("fit", "c of alpha* = c ln n, cosine scores, d = 128", "3.5", 3.5, "theory gradient --scores cosine --dim 128",
         lambda x: x["fit"]["c"]),
        ("formula", "keys at which alpha* reaches 25, d = 128", "25 ~ 35", None, "theory gradient --scores cosine --between 25,35",
         lambda x: x["n"][0]),
        ("formula", "keys at which alpha* reaches 35, d = 128", "25 ~ 35", None, "theory gradient --scores cosine --between 25,35",
         lambda x: x["n"][1]),
        ("formula", "keys at which 30 is the optimum, d = 128", "about 30", None, "theory gradient --scores cosine --between 30,30",
         lambda x: x["n"][0]),
        ("formula", "alpha* at n = L_max/2 for L_max = 1024, normal scores", "L_max/2", None, "theory gradient --lengths 512",
         lambda x: first(x, "alpha")),
    ],
}  # fmt: skip


def beside_the_note(name: str, numbers: dict, run: Run) -> list[str]:
    rows = []
    for kind, quantity, note, printed, command, number_in in NOTE[name]:
        ours = number_in({"laplace": numbers["laplace"]["1"]} | run(*shlex.split(command), "--json"))
        deviation = "–" if printed is None else f"{signed(100 * (ours / printed - 1), 2)} %"
        rows.append([quantity, note, f"{ours:.6g}", deviation, kind, f"`isentrope {command}`"])
    return table(["number", "in the note", "ours", "deviation", "kind", "command"], rows)


def optima(run: Run, scores: str, lengths: str, dim: int = 128) -> dict[int, float]:
    found = run("theory", "gradient", "--scores", scores, "--dim", str(dim), "--lengths", lengths, "--json")
    return {row["n"]: row["alpha"] for row in found["values"]}


def fits_of_the_note(run: Run) -> list[str]:
    lengths = "40,100,500,1000,5000,10000,20000"
    normal, cosine, rows = optima(run, "normal", lengths), optima(run, "cosine", lengths), []
    for n in normal:
        fits = 0.84 * math.sqrt(math.log(n)), 3.5 * math.log(n)
        rows.append([compact(n), decimal(normal[n], 3), decimal(fits[0], 3), signed(fits[0] - normal[n], 3),
                     decimal(cosine[n], 2), decimal(fits[1], 2), signed(fits[1] - cosine[n], 2)])  # fmt: skip
    return table(["n", "alpha*, normal", "0.84 sqrt(ln n)", "misses by", "alpha*, cosine, d = 128", "3.5 ln n", "misses by"], rows)


def fits(run: Run) -> list[str]:
    rows = []
    for scores, dim in (("normal", 128), *(("cosine", dim) for dim in (16, 32, 64, 128, 256, 512, 1024, 4096))):
        fit = run("theory", "gradient", "--scores", scores, "--dim", str(dim), "--json")["fit"]
        title, form, digits = ("normal", "sqrt(ln n)", 4) if scores == "normal" else (f"cosine, d = {dim}", "ln n", 3)
        at = optima(run, scores, "512,20000", dim).values()
        rows.append([title, f"{fit['c']:.4f} {form}", f"{fit['rms_residual']:.3f}", *(f"{alpha:.{digits}f}" for alpha in at)])
    return table(["scores", "fit", "rms residual", "alpha* at n = 512", "alpha* at n = 20000"], rows)


def entropies(run: Run) -> list[str]:
    def starred(value: float, inside: bool) -> str:
        return f"{value:.4f}{'' if inside else '*'}"

    rows = []
    for n in (64, 512, 4096):
        for scale in ("0.125", "0.25", "1"):
            found = run("theory", "entropy", "--lengths", str(n), "--lambda", scale, "--json")["values"][0]
            rows.append([str(n), scale, starred(found["entropy"], found["in_range"]), f"{found['correction']:.2g}",
                         starred(found["saddle"], found["saddle"] >= 0), starred(found["laplace"], found["laplace_in_range"]),
                         f"{found['row_mean']:.4f}", f"{math.log(n):.4f}"])  # fmt: skip
    return table(["n", "lambda", "H", "correction of order 1/n", "Laplace at lambda", "ln n - 0.2406 lambda d", "mean of rows", "ln n"],
                 rows)  # fmt: skip


def bases(run: Run) -> list[str]:
    rows = []
    for dim in (64, 128):
        for begin, end in ((64, 1024), (512, 4096), (512, 131072)):
            held = run("theory", "entropy", "--hold", f"{begin},{end}", "--dim", str(dim), "--json")
            rows.append([f"{begin} and {end}", str(dim), *(f"{held[name]:.3f}" for name in ("base", "kappa", "entropy"))])
    return table(["lengths", "d", "base", "kappa", "entropy"], rows)


def dimensions(run: Run) -> list[str]:
    values = run("theory", "dimension", "--json")["values"]
    return table(["n", "8 ln n", "64 log_512 n"], [[str(x["n"]), f"{x['dimension']:.2f}", f"{x['matched']:.2f}"] for x in values])


def by_length(rules: dict[str, dict], words: Callable[..., str]) -> list[str]:
    rows = [[f"`{rule}`", *map(words, found.values())] for rule, found in rules.items()]
    return table(["rule", *(f"n = {n}" for n in next(iter(rules.values())))], rows)


HEAD_RULES = {
    "standard": "standard",
    "base 512": "base 512",
    "one base": "one base for all heads, fitted",
    "a base per head": "a base for each head, fitted",
    "a line per head": "a line in ln n for each head, fitted",
}


def of_heads(found: dict, numbers: list[list[float]]) -> list[float]:
    """Returns the values [layers][heads] of heads with a base and a line, which every rule can use."""
    layers = zip(found["base"], found["line"], numbers)
    return [x for bases, lines, row in layers for base, line, x in zip(bases, lines, row) if None not in (base, line)]


def quantile(x: list[float], share: float) -> float:
    return sorted(x)[int(share * (len(x) - 1) + 0.5)]


def head_bases() -> list[str]:
    found, rows, quartiles = record("head-bases-smollm2"), [], []
    for name, title in HEAD_RULES.items():
        entropies = [of_heads(found, heads) for heads in found["entropy"][name]]
        largest = [max(abs(x - of_head[0]) for x in of_head) for of_head in zip(*entropies)]
        rows.append([title, *(decimal(fmean(x), 2) for x in entropies), decimal(quantile(largest, 0.5), 2),
                     f"{sum(change < 0.25 for change in largest)} of {len(largest)}"])  # fmt: skip
    for what in ("base", "line"):
        fitted = of_heads(found, found[what])
        quartiles.append([what, str(len(fitted)), *(f"{quantile(fitted, share):.3g}" for share in (0.1, 0.25, 0.5, 0.75, 0.9))])
    head = ["fitted", "heads", "lowest tenth", "lower quarter", "median", "upper quarter", "highest tenth"]
    changes = ["median of the largest change of each head", "heads that change by less than 0.25"]
    return [*table(head, quartiles), "", *table(["scale", *(f"n = {compact(n)}" for n in found["lengths"]), *changes], rows)]


def catalogue(rules: list[dict]) -> list[str]:
    rows = []
    for rule in rules:
        length, colon, why = rule["counts"].partition(":")
        rows.append([f"`{rule['signature']}`", f"`{rule['formula']}`", rule["at_one"], f"`{length}`{colon}{why}" if length else "–",
                     rule["use"], rule["source"]])  # fmt: skip
    return table(["rule", "lambda", "at n = 1", "length n", "take it for", "source"], rows)


def tables(numbers: dict, run_program: Run) -> dict[tuple[str, str], list[str]]:
    def run(*words: str) -> dict:
        return run_program("isentrope", *words)

    laplace = numbers["laplace"]
    return {
        ("docs/scale-rules.md", "rules"): catalogue(numbers["rules"]),
        ("docs/scale-rules.md", "factors"): by_length(numbers["factors"], lambda factor: f"{factor:.4g}"),
        ("docs/theory.md", "laplace"): table(["lambda", *laplace], [["k(lambda)", *(f"{x:.4f}" for x in laplace.values())]]),
        ("docs/theory.md", "entropy"): entropies(run),
        ("docs/theory.md", "bases"): bases(run),
        ("docs/theory.md", "dimension"): dimensions(run),
        ("docs/theory.md", "fits"): fits(run),
        ("docs/theory.md", "starved"): by_length(numbers["starved"], lambda x: f"{100 * x[0]:.1f} %, mass {x[1]:.2f}"),
        ("docs/theory.md", "head-bases"): head_bases(),
        **{("docs/seeds.md", name): beside_the_note(name, numbers, run) for name in NOTE},
        ("docs/seeds.md", "fits"): fits_of_the_note(run),
    }
