"""Kernels of backward passes, compiled for chips that are not here."""

import pytest
from test_compiled import check, chosen


@chosen(backward=True, others=pytest.mark.long)
def test_compiles(chip, variant):
    check(chip, variant)
