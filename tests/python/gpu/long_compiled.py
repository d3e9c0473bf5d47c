"""Every variant that the plan can choose, and others that take its tiles, for every chip."""

from pathlib import Path

import pytest
import table
import variants
from test_compiled import check

EVERY = variants.every() + variants.with_tiles_of_others() + variants.padded()


@pytest.mark.parametrize("chip", table.CHIPS)
@pytest.mark.parametrize("variant", EVERY, ids=lambda variant: f"{variant.name} {'backward' * variant.backward}")
def test_compiles(chip, variant):
    check(chip, variant)


@pytest.mark.parametrize("chip, dim, backward", table.CALLS)
def test_the_table_is_current(chip, dim, backward):
    page = Path(__file__).parents[3] / "docs/contributors/gpu.md"
    shown = page.read_text().splitlines()
    for row in table.rows(chip, dim, backward):
        assert row in shown, "docs/generate/gpu_table.py brings docs/contributors/gpu.md up to date"
