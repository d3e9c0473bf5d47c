"""Every variant that the plan can choose, for every chip."""

import pytest
import variants
from test_compiled import check

from isentrope.gpu.compiling import TARGETS


@pytest.mark.parametrize("chip", TARGETS)
@pytest.mark.parametrize("variant", variants.every(), ids=lambda variant: f"{variant.name} {'backward' * variant.backward}")
def test_compiles_without_spills(chip, variant):
    check(chip, variant)
