"""Kernels of the tangent pass and of the second-order pass, compiled for chips that are not here."""

import pytest
import torch
from table import CHIPS
from variants import Variant

from src.gpu.compiling import TARGETS, compiled, launches

CASES = [
    (chip, Variant(dtype, dim, statistics, masked))
    for chip in CHIPS for dtype in (torch.bfloat16, torch.float16) for dim in (64, 128)
    for statistics, masked in ((True, False), (False, False), (True, True))
]  # fmt: skip
FAST = ("sm_90", Variant(torch.bfloat16, 128, True))


@pytest.mark.parametrize("chip, variant", [pytest.param(*x, marks=() if x == FAST else pytest.mark.long) for x in CASES], ids=str)
def test_compiles(chip, variant):
    with launches(TARGETS[chip]) as recorded:
        variant.derivatives()
    kernels = [one for one in recorded if one.name.startswith(("tangent", "second_order")) and not one.name.endswith("_repair")]
    assert {one.name for one in kernels} == {"tangent", "second_order_rows", "second_order_query", "second_order_key"}
    for one in kernels:
        kernel = compiled(one, TARGETS[chip])
        assert kernel.spilled == 0 and kernel.shared <= TARGETS[chip].shared, f"{one.name}: {kernel}"
