"""Limits of bench/gpu/decode.py on the compiled decode step for sm_90, and programs of a multiprocessor of others."""

from pathlib import Path

import pytest
import torch

from bench.gpu import decode
from bench.gpu.decode import bars, bars_of_merges, bars_of_waves, measured, occupancy, table_of_waves, waves
from isentrope.gpu import plan
from src.gpu.compiling import TARGETS

# A loop of several warps with one buffer each for keys and values, which these limits must refuse.
EIGHT_WARPS = plan.Tiles(16, 64, 8, 2)
FAST = ("bf16", 128, False, 64)
EVERY = [
    (dtype, dim, statistics, page)
    for dtype in decode.DTYPES for dim in decode.INSTRUCTIONS for statistics in (False, True) for page in decode.PAGES
]  # fmt: skip


@pytest.mark.parametrize("call", [pytest.param(call, marks=() if call == FAST else pytest.mark.long) for call in EVERY], ids=str)
def test_the_limits_hold(call):
    assert not [str(bar) for bar in bars(measured(*call)) if not bar.holds]


PROGRAMS = {"sm_80": 4, "sm_86": 2, "sm_89": 2, "sm_120": 2, "sm_100": 6}


@pytest.mark.parametrize(
    "chip, count", [pytest.param(*one, marks=() if one[0] == "sm_80" else pytest.mark.long) for one in PROGRAMS.items()]
)
def test_the_plan_counts_on_the_programs_that_fit_a_multiprocessor(chip, count):
    x = measured(*FAST, chip)
    assert occupancy(x).holds and x.occupancy == x.programs == count


@pytest.mark.long
@pytest.mark.parametrize("dtype", decode.DTYPES)
@pytest.mark.parametrize("dim", [64, 256])
def test_other_dimensions_fit_a_multiprocessor(dtype, dim):
    for page in (0, 64):
        assert occupancy(measured(dtype, dim, True, page, "sm_80")).holds


@pytest.mark.parametrize("tiles, chip, count", [
    (plan.Tiles(16, 32, 1, 3, occupancy=12), "sm_90", 12), (plan.Tiles(16, 32, 1, 2, occupancy=None), "sm_90", 8),
    (plan.Tiles(16, 128, 4, 3, occupancy=None), "sm_90", 1), (plan.Tiles(16, 128, 4, 3, occupancy=None), "gfx942", 2),
])  # fmt: skip
def test_programs_that_a_multiprocessor_runs_at_once(tiles, chip, count):
    assert plan.occupancy_of(tiles, TARGETS[chip].chip, torch.bfloat16, 128, 128) == count


@pytest.mark.parametrize("page", [pytest.param(0, marks=pytest.mark.long), 64])
def test_eight_warps_are_refused(page, monkeypatch):
    monkeypatch.setattr(plan, "tiles", lambda *_, **__: EIGHT_WARPS)
    missed = [bar.what for bar in bars(measured("bf16", 128, False, page)) if not bar.holds]
    for what in ("instructions a key", "barriers between warps", "bytes in flight"):
        assert any(what in one for one in missed), what


def test_programs_fill_whole_waves():
    limits = list(bars_of_waves())
    assert not [str(bar) for bar in limits if not bar.holds]
    assert len(waves()) == 112 and len(limits) > 70


def test_merges_wait_for_few_rounds_of_loads():
    assert not [str(bar) for bar in bars_of_merges() if not bar.holds]


def test_the_page_has_the_table_of_waves():
    page = Path(__file__).parents[3] / "docs/contributors/gpu-compiled.md"
    assert "\n".join(table_of_waves()) in page.read_text()
