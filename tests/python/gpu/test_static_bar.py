"""Limits of bench/gpu_bar.py on the compiled kernels for sm_90, beside published ones."""

import gpu_measured
import gpu_static
import pytest
from gpu_bar import bars
from gpu_disassembly import Loop, loops

from isentrope.gpu import plan

# Tiles of earlier versions: the same for every call, small enough for all statistics.
SMALL = {
    ("sm90", "forward"): dict.fromkeys((64, 128), plan.Tiles(128, 32, 8, 2)),
    ("sm90", "query gradient"): {64: plan.Tiles(64, 64, 8, 2), 128: plan.Tiles(64, 16, 8, 2)},
    ("sm90", "key gradient"): {64: plan.Tiles(16, 128, 8, 2), 128: plan.Tiles(16, 64, 8, 3)},
}
OTHERS = [pytest.param(dtype, dim, marks=pytest.mark.long) for dtype, dim in (("bf16", 128), ("f16", 64), ("f16", 128))]


@pytest.mark.parametrize("dtype, dim", [("bf16", 64), *OTHERS])
def test_the_bar_holds(dtype, dim):
    assert not [str(bar) for bar in bars(gpu_static.measured(dtype, dim)) if not bar.holds]


@pytest.mark.long
@pytest.mark.parametrize("dim", gpu_static.DIMS)
def test_small_tiles_are_refused(dim, monkeypatch):
    monkeypatch.setattr(plan, "_BARE", SMALL)
    monkeypatch.setattr(plan, "_OWN", SMALL)
    missed = [bar.what for bar in bars(gpu_static.measured("bf16", dim)) if not bar.holds]
    for what in ("forward: instructions a score over the plain", "columns of the narrowest", "fences in a loop", "instructions a flop"):
        assert any(what in one for one in missed), what


CODE = """
.L_x_0:
        /*0010*/                   LDL R1, [R2] ;
        /*0020*/              @!P0 BRA `(.L_x_1) ;
.L_x_2:
        /*0030*/                   WARPGROUP.ARRIVE ;
        /*0040*/                   HGMMA.64x8x16.F32.BF16 R24, gdesc[UR8], RZ, !UPT ;
        /*0050*/                   HGMMA.64x128x16.F32.BF16 R32, gdesc[UR8], R32, gsb0 ;
        /*0060*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
        /*0070*/                   MUFU.EX2 R149, R74 ;
        /*0080*/               @P2 STL [R1], R2 ;
        /*0090*/               @P2 BRA `(.L_x_2) ;
.L_x_1:
        /*00a0*/               @P0 BRA `(.L_x_0) ;
.L_x_3:
        /*00b0*/                   BRA `(.L_x_3);
"""


def test_loops_are_the_innermost_ones_with_products():
    (loop,) = loops(CODE)
    assert (loop.instructions, loop.fences, loop.spills, loop.narrowest) == (7, 2, 1, 8)
    assert loop.products == {(64, 8, 16): 1, (64, 128, 16): 1}
    assert loop.operations == 2 * 64 * (8 + 128) * 16 / 4


def test_programs_of_a_multiprocessor():
    assert gpu_measured.programs_of(registers=128, shared=65536, warps=8) == 2
    assert gpu_measured.programs_of(registers=129, shared=65536, warps=8) == 1
    assert gpu_measured.programs_of(registers=32, shared=116000, warps=4) == 1
