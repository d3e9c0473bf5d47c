"""Every variant that the plan can choose, and others with the same tiles, for every chip; test_compiled.py has the rest of sm_90."""

from pathlib import Path

import pytest
import variants
from test_compiled import CHOSEN, check

from bench.gpu import tables
from src.gpu.compiling import RDNA

LINES = variants.every() + variants.with_tiles_of_others() + variants.padded()
# test_compiled.py compiles CHOSEN.
EVERY = [(chip, text) for chip in tables.CHIPS for text in LINES if (chip, text) not in CHOSEN]


@pytest.mark.parametrize("chip, text", EVERY)
def test_compiles(chip, text):
    check(chip, text)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("words, kernel", [("", "forward"), ("stats=lse", "forward"), ("stats=lse bwd=1", "query_gradient")])
def test_waves_of_32_lanes(dtype, words, kernel):
    """Kernels that must not spill on RDNA."""
    call = variants.Variant(variants.line(dtype, 64, words))
    (compiled_kernel,) = [compiled for one, compiled in call.on(RDNA) if one.name == kernel]
    assert compiled_kernel.spilled == 0 and compiled_kernel.products["WMMA"] > 0 and compiled_kernel.shared <= RDNA.shared, compiled_kernel


@pytest.mark.parametrize("chip, dim, backward", tables.CALLS)
def test_the_table_is_current(chip, dim, backward):
    page = Path(__file__).parents[3] / "docs/contributors/gpu-compiled.md"
    shown = page.read_text().splitlines()
    for row in tables.rows(chip, dim, backward):
        assert row in shown, "bench/gpu/tables.py brings docs/contributors/gpu-compiled.md up to date"
