"""Limits of bench/gpu/bar.py and bench/gpu/costs.py on the compiled kernels for sm_90."""

import pytest
from variants import changed_sources

from bench.gpu import costs, static
from bench.gpu.bar import bars
from isentrope.gpu import plan
from isentrope.gpu.kernels import gradient_tile
from src.gpu.disassembly import loops

SMALL = {  # tiles of earlier versions: the same for every call, small enough for all statistics
    ("sm90", "forward"): dict.fromkeys((64, 128), plan.Tiles(128, 32, 8, 2)),
    ("sm90", "query gradient"): {64: plan.Tiles(64, 64, 8, 2), 128: plan.Tiles(64, 16, 8, 2)},
    ("sm90", "key gradient"): {64: plan.Tiles(16, 128, 8, 2), 128: plan.Tiles(16, 64, 8, 3)},
}
OTHERS = [pytest.param(dtype, dim, marks=pytest.mark.long) for dtype, dim in (("bf16", 128), ("f16", 64), ("f16", 128))]


@pytest.mark.parametrize("dtype, dim", [("bf16", 64), *OTHERS])
def test_the_bar_holds(dtype, dim):
    assert not [str(bar) for bar in bars(static.measured(dtype, dim)) if not bar.holds]


@pytest.mark.long
@pytest.mark.parametrize("dim", static.DIMS)
def test_small_tiles_are_refused(dim, monkeypatch):
    monkeypatch.setattr(plan, "_BARE", SMALL)
    monkeypatch.setattr(plan, "_OWN", SMALL)
    missed = [bar.what for bar in bars(static.measured("bf16", dim)) if not bar.holds]
    for what in ("forward: instructions a score over the plain", "columns of the narrowest", "fences in a loop", "instructions a flop"):
        assert any(what in one for one in missed), what


@pytest.mark.long
@pytest.mark.parametrize("dtype, dim, measured", [("bf16", 64, False), ("bf16", 128, False), ("f16", 64, False), ("f16", 128, False),
                                                  *(("bf16", dim, True) for dim in static.DIMS)])  # fmt: skip
@pytest.mark.parametrize("direction", costs.PASSES)
def test_statistics_cost_what_their_limits_allow(direction, dtype, dim, measured):
    names = tuple(name for of, name in (costs.LIMITS_OF_MEASURED if measured else costs.LIMITS) if of == direction)
    bars = [bar for cost in costs.costs(direction, dtype, dim, names, measured_tiles=measured) for bar in costs.bars(cost)]
    assert (len(bars) if measured else sum("over those without" in bar.what for bar in bars)) == len(names)
    assert not [str(bar) for bar in bars if not bar.holds]


@pytest.mark.long
@pytest.mark.parametrize("dim", static.DIMS)
def test_an_instruction_more_for_each_score_is_refused(dim):
    """Gradients of the entropy that also bound each logit, as in tiles with hidden keys, are above the limit."""
    function = gradient_tile.logit_slopes
    source = function.src.replace("if not FINITE:", "if True:")
    assert source != function.src
    with changed_sources({function: source}):
        (cost,) = costs.costs("backward", "bf16", dim, ("entropy",))
    (missed,) = [bar for bar in costs.bars(cost) if not bar.holds]
    assert "instructions over those without statistics" in missed.what


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
    h200, a100 = plan.nvidia(9, 0, 132), plan.nvidia(8, 0, 108)
    assert plan.programs_of(h200, registers=128, shared=65536, warps=8) == 2
    assert plan.programs_of(h200, registers=129, shared=65536, warps=8) == 1
    assert plan.programs_of(h200, registers=32, shared=116000, warps=4) == 1
    assert [plan.programs_of(chip, registers=128, shared=40000, warps=2) for chip in (h200, a100)] == [5, 4]
