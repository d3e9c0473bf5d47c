"""Limits of bench/gpu_decode.py on the compiled decode step for sm_90."""

import gpu_decode
import pytest
from gpu_decode import bars, measured, waves

from isentrope.gpu import plan

# A loop of several warps with one buffer each for keys and values, which these limits must refuse.
EIGHT_WARPS = plan.Tiles(16, 64, 8, 2)
FAST = ("bf16", 128, False, 64)
EVERY = [
    (dtype, dim, statistics, page)
    for dtype in gpu_decode.DTYPES for dim in gpu_decode.INSTRUCTIONS for statistics in (False, True) for page in gpu_decode.PAGES
]  # fmt: skip


@pytest.mark.parametrize("call", [pytest.param(call, marks=() if call == FAST else pytest.mark.long) for call in EVERY], ids=str)
def test_the_limits_hold(call):
    assert not [str(bar) for bar in bars(measured(*call)) if not bar.holds]


@pytest.mark.parametrize("page", [pytest.param(0, marks=pytest.mark.long), 64])
def test_eight_warps_are_refused(page, monkeypatch):
    monkeypatch.setattr(plan, "tiles", lambda *_, **__: EIGHT_WARPS)
    missed = [bar.what for bar in bars(measured("bf16", 128, False, page)) if not bar.holds]
    for what in ("instructions a key", "barriers between warps", "bytes in flight"):
        assert any(what in one for one in missed), what


def test_programs_fill_whole_waves():
    assert not [str(bar) for bar in waves() if not bar.holds]
