"""Every variant of every kernel for every chip, with the installed Triton and with the oldest one."""

import re

import layouts
import oldest_triton
import pytest

from src.gpu.compiling import TARGETS, ttgir


@pytest.mark.parametrize("chip", layouts.CHIPS)
def test_no_product_is_wrong(chip):
    assert layouts.wrong(layouts.every(), chip)[0] == []


# Triton 3.6 and 3.7 do not compile forward passes and query gradients of bf16 and f16 for sm_100 (decision 35).
@pytest.mark.parametrize("chip", [chip for chip in layouts.CHIPS if chip != "sm_100"])
def test_no_product_is_wrong_with_the_oldest_triton(chip):
    assert f"Triton {oldest_triton.OLDEST}: 0 faults" in oldest_triton.scan("--chips", chip)


def test_chips_without_a_scan_of_their_own_have_the_code_of_sm_80():
    for kernel, what in layouts.kernels(layouts.worst(), "sm_80", repairs=False):
        codes = {re.sub(r"cuda:\d+", "", ttgir(kernel, TARGETS[chip])) for chip in ("sm_80", "sm_86", "sm_89")}
        assert len(codes) == 1, what
