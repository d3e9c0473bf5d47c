"""Kernels compiled for chips that are not here: nothing spills, everything fits, tensor cores do the products."""

import re

import pytest
import torch
import variants
from variants import Variant

from isentrope.gpu.compiling import TARGETS

HALVES = (torch.bfloat16, torch.float16)
# Every entry of the plan on the chip with the fewest registers to spare, with all that takes registers; on the others the
# widest tiles of the commonest type. long_compiled.py has the rest.
EVERY = [variant for variant in variants.every() if variant.statistics]
DROPPED = [Variant(torch.bfloat16, 128, statistics=False, backward=backward, dropout=True) for backward in (False, True)]
WIDEST = [Variant(torch.bfloat16, 128, backward=backward) for backward in (False, True)]
CHOSEN = [("sm_90", variant) for variant in EVERY + DROPPED] + [
    (chip, variant) for chip in ("sm_80", "sm_100", "gfx942") for variant in WIDEST
]  # fmt: skip
WITH_PRODUCTS = ("forward", "query_gradient", "key_gradient")


def check(chip, variant):
    target = TARGETS[chip]
    for launch, kernel in variant.on(target):
        what = f"{chip} {variant.name} {launch.name} {kernel}"
        assert kernel.spilled == 0, what
        assert kernel.shared <= target.shared, what
        if launch.name in WITH_PRODUCTS:
            assert kernel.products or variant.dtype == torch.float32, what
        if chip == "sm_90" and launch.name in WITH_PRODUCTS and variant.dtype in HALVES and variant.dim in (64, 128):
            # A decode step has too few rows for a warp group, and masks of their own leave too few registers.
            assert variant.few or variant.masked or "HGMMA" in kernel.products, what


def chosen(backward):
    """Backward passes are compiled in a process of their own, at the same time."""
    found = [(chip, variant) for chip, variant in CHOSEN if variant.backward == backward]
    return pytest.mark.parametrize("chip, variant", found, ids=lambda x: x if isinstance(x, str) else x.name)


@chosen(backward=False)
def test_compiles(chip, variant):
    check(chip, variant)


def test_the_variants_choose_every_entry_of_the_plan(monkeypatch):
    from isentrope.gpu import plan

    chosen = set()
    tiles = plan.tiles

    def noted(kernel, chip, dtype, columns, masked=False):
        chosen.add((dtype, kernel, masked, columns))
        return tiles(kernel, chip, dtype, columns, masked)

    monkeypatch.setattr(plan, "tiles", noted)
    from isentrope.gpu.compiling import launches

    with launches(TARGETS["sm_90"]):
        for variant in variants.every():
            variant.call()
    for table, dtypes in ((plan._HALVES, (torch.bfloat16, torch.float16)), (plan._FLOATS, (torch.float32,))):
        for name, by_columns in table.items():
            masked, kernel = name.startswith("masked "), name.removeprefix("masked ")
            assert {(dtype, kernel, masked, columns) for dtype in dtypes for columns in by_columns} <= chosen


def without_statistics(source):
    """The source of a kernel with all that statistics but lse and support add to it cut out."""
    kept, inside = [], None
    for line in source.splitlines():
        depth = len(line) - len(line.lstrip())
        if inside is not None and (not line.strip() or depth > inside):
            continue
        inside = depth if re.match(r"\s*if WANTED\.(?!LSE|SUPPORT)", line) else None
        if inside is None:
            kept.append(line)
    return "\n".join(kept) + "\n"


def test_a_call_that_asks_for_no_statistics_pays_nothing():
    """It compiles to the same instructions as a kernel that has none in its source."""
    from isentrope.gpu import forward, softmax

    variant = Variant(torch.bfloat16, 64, statistics=False)
    ((_, full),) = variant._replace(statistics=True).on(TARGETS["sm_90"])
    ((_, bare),) = variant.on(TARGETS["sm_90"])
    functions = [getattr(softmax, name) for name in ("rebase", "add_moments")]
    functions += [getattr(forward, name) for name in ("write_rows", "store_share", "forward_kernel")]
    sources = [function.src for function in functions]
    try:
        for function, source in zip(functions, sources):
            function._unsafe_update_src(without_statistics(source))
        assert all(len(function.src) < len(source) for function, source in zip(functions, sources))
        ((_, none),) = variant.on(TARGETS["sm_90"])
    finally:
        for function, source in zip(functions, sources):
            function._unsafe_update_src(source)
    assert bare == none and bare.instructions < full.instructions
