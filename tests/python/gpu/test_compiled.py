"""Kernels compiled for chips that are not here: what spills is known, everything fits, tensor cores do the products."""

import pytest
import torch
import variants
from variants import Variant

from isentrope.gpu.compiling import TARGETS

# Of each chip the widest tiles of the commonest type with everything that takes registers; long_compiled.py has the rest.
COMMON = [Variant(torch.bfloat16, dim, backward=backward) for dim in (64, 128) for backward in (False, True)]
WIDEST = [Variant(torch.bfloat16, 128, backward=backward) for backward in (False, True)]
CHOSEN = [("sm_90", v) for v in COMMON] + [
    (chip, v) for chip in ("sm_80", "sm_100", "gfx942") for v in WIDEST
]  # fmt: skip
# Bytes that kernels spill all the same, by chip, kernel and head dimension of bf16 with all statistics: smaller tiles would
# have no wgmma, or spill as well. Nothing may spill more.
SPILLED = {("sm_80", "forward", 128): 32}
WITH_WGMMA = ("forward", "query_gradient", "key_gradient")


def check(chip, variant):
    target = TARGETS[chip]
    for launch, kernel in variant.on(target):
        what = f"{chip} {variant.name} {launch.name} {kernel}"
        assert kernel.spilled <= SPILLED.get((chip, launch.name, variant.dim), 0), what
        assert kernel.shared <= target.shared, what
        if launch.name in WITH_WGMMA:
            assert kernel.products or variant.dtype == torch.float32, what
        if chip == "sm_90" and launch.name in WITH_WGMMA and variant.dtype != torch.float32 and variant.dim in (64, 128):
            # A decode step has too few rows for a warp group, and masks of their own leave too few registers.
            assert variant.few or variant.masked or "HGMMA" in kernel.products, what


@pytest.mark.parametrize("chip, variant", CHOSEN, ids=lambda x: x if isinstance(x, str) else x.name)
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
