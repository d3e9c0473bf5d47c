"""Every variant of every kernel for every chip, with the installed Triton and with the one that laid operands out wrongly."""

import os
import subprocess
import sys
from pathlib import Path

import layouts
import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("chip", layouts.CHIPS)
def test_no_product_is_wrong(chip):
    assert layouts.wrong(layouts.every(), chip)[0] == []


# Triton 3.6 and 3.7 do not compile forward passes and query gradients of bf16 and f16 for sm_100 (decision 35).
@pytest.mark.parametrize("chip", [chip for chip in layouts.CHIPS if chip != "sm_100"])
def test_no_product_is_wrong_with_triton_3_6(chip):
    folder = subprocess.run([ROOT / "scripts/setup", "--triton", "3.6.0"], check=True, capture_output=True, text=True).stdout.strip()
    path = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(ROOT / "tests/python/gpu/layouts.py"), "--chips", chip]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Triton 3.6.0: 0 faults" in done.stdout
