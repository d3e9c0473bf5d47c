"""Conformance problems to run first on a device: former failures, then problems that cover every pair of features."""

from __future__ import annotations

import itertools
import random

from isentrope._core.library import STATISTICS

# Lines that passed in the interpreter and failed on an H200: kWidth of a product's operand, and a contracted
# difference.
ONCE_FAILED = [
    "shape=1x1x71x37x37 admitted=1 dropout=0.25 dropout_seed=3247048918431359 bwd=1 seed=16",
    "dt=bf16 shape=2x1x3x256x2 special=1 seed=15",
    "dt=bf16 shape=2x1x3x256x2 mask=causal:bottom_right special=1 bwd=1 seed=15",
    "dt=f16 shape=2x1x3x256x2 mask=causal:bottom_right special=1 bwd=1 seed=15",
    "dt=f16 shape=1x12:3x9x9x24:160 mask=causal:bottom_right,dilation=7 cap=0.5 admitted=1 dropout=0.1"
    " dropout_seed=1816752153120331 bwd=1 scale=1e-06 seed=164",
    "shape=2x8:1x3x1023x2 rule=logn(train_len=32) admitted=1 dropout=0.25 dropout_seed=4777061554320694 bwd=1 scale=0.001 seed=180",
]
# Features of a problem as words of its line; "" is absence. A single query against 4100 keys is split into shares.
FACTORS: dict[str, tuple[str, ...]] = {
    "type": ("dt=f32", "dt=bf16", "dt=f16"),
    "dim": ("2", "37", "64", "64:32", "128", "24:160", "192:128", "256"),
    "size": ("1x1", "1x4100", "3x256", "17x31", "71x300", "140x1030"),
    "heads": ("1x2:1", "2x3"),
    "attn_mask": ("", "admitted=1"),
    "bias": ("", "bias=1"),
    "structure": (
        "", "causal:bottom_right", "causal:top_left,window=9:5", "left_padding,right_padding", "documents=3", "offset=11:5,prefix=4",
        "causal:bottom_right,chunk=7",
    ),
    "dilation": ("", "dilation=3", "dilation=40"),
    "dropout": ("", "dropout=0.25 dropout_seed=7"),
    "cap": ("", "cap=5"),
    "sink": ("", "sink=1"),
    "special": ("", "special=1"),
    "gradients": ("", "bwd=1"),
    "statistics": ("", *(f"stats={s['name']}" for s in STATISTICS if s["from_sums"])),
    "rule": ("", "rule=log_length"),
    "scale": ("", "scale=100", "scale=0.001"),
    "pages": ("", "pages=16"),
}  # fmt: skip
# Features that exclude a paged cache; `Problem.unsupported` says the same of lines.
_ONLY_EMPTY_WITH_PAGES = ("attn_mask", "bias", "dilation", "dropout", "gradients")
_STRUCTURES_WITH_PAGES = ("", "causal:bottom_right", "causal:top_left,window=9:5", "causal:bottom_right,chunk=7")

Choice = dict[str, str]
Pair = frozenset[tuple[str, str]]


def is_possible(choice: Choice) -> bool:
    """Returns whether some problem has all of these features."""
    if choice.get("pages", "") and (
        any(choice.get(name, "") for name in _ONLY_EMPTY_WITH_PAGES) or choice.get("structure", "") not in _STRUCTURES_WITH_PAGES
    ):
        return False
    # A dilation would split the keys of a prefix.
    return not (choice.get("dilation", "") and "prefix" in choice.get("structure", ""))


def pairs() -> set[Pair]:
    """Returns every pair of values of different factors that some problem has."""
    found = set()
    for (a, values_a), (b, values_b) in itertools.combinations(FACTORS.items(), 2):
        found |= {
            frozenset({(a, x), (b, y)}) for x, y in itertools.product(values_a, values_b) if is_possible({a: x, b: y})
        }
    return found


def pairs_of(choice: Choice) -> set[Pair]:
    """Returns the pairs of values that a choice covers."""
    return {frozenset(pair) for pair in itertools.combinations(choice.items(), 2)}


def choices(seed: int = 1) -> list[Choice]:
    """Returns choices of a value for each factor that together cover every pair of `pairs`, found greedily. Each choice
    starts with an uncovered pair and takes the factors in a random order: of each the value that covers most further
    pairs. The same seed gives the same choices."""
    source, found = random.Random(seed), []
    left = pairs()
    while left:
        # In an order that does not depend on string hashes.
        choice = dict(source.choice(sorted(left, key=sorted)))
        others = [name for name in FACTORS if name not in choice]
        source.shuffle(others)
        for name in others:
            possible = [value for value in FACTORS[name] if is_possible(choice | {name: value})]
            gains = [sum(frozenset({(name, value), chosen}) in left for chosen in choice.items()) for value in possible]
            best = [value for value, gain in zip(possible, gains) if gain == max(gains)]
            choice[name] = source.choice(best)
        left -= pairs_of(choice)
        found.append(choice)
    return found


def line_of(choice: Choice, seed: int) -> str:
    """Returns the problem of a choice as a line of `isentrope check`."""
    masks = ",".join(choice[name] for name in ("structure", "dilation") if choice[name])
    fields = [choice["type"], f"shape={choice['heads']}x{choice['size']}x{choice['dim']}", f"mask={masks}" * bool(masks)]
    fields += [choice[name] for name in ("rule", "cap", "attn_mask", "bias", "sink", "special", "dropout", "pages", "gradients", "statistics", "scale")]
    return " ".join(field for field in [*fields, f"seed={seed}"] if field)


def problem_lines(seed: int = 1, coverings: int = 3) -> list[str]:
    """Returns lines of the problems to run first: ONCE_FAILED, then every pair `coverings` times, among other
    features."""
    found = [choice for number in range(coverings) for choice in choices(seed + number)]
    return ONCE_FAILED + [line_of(choice, index) for index, choice in enumerate(found, 1)]
