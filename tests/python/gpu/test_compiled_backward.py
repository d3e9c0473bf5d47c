"""Kernels of backward passes, compiled for chips that are not here."""

from test_compiled import check, chosen


@chosen(backward=True)
def test_compiles(chip, variant):
    check(chip, variant)
