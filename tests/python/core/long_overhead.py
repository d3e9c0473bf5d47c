"""Overhead of small calls over torch's own, in instructions, which no load of the machine changes."""

import re
import shutil
import subprocess
import sys

import pytest

CALLS = 40

# Each block of calls ends with os.getppid(), at which callgrind writes the instructions since the last one.
PROGRAM = """
import os
import sys
import torch
import torch.nn.functional as F
import isentrope

torch.set_num_threads(1)


def gradients(attention, dim, causal, dense):
    q, k, v = (torch.randn(1, 8, 16, dim, requires_grad=True) for _ in range(3))
    upstream = torch.randn(q.shape)

    def run():
        output = attention(q, k, v, is_causal=causal)
        if dense:
            output.backward(upstream)
        else:
            output.sum().backward()  # a gradient whose strides are 0

    return run


def forward(attention, rows, **options):
    q, k, v = (torch.randn(1, 8, rows, 64) for _ in range(3))

    def run():
        with torch.inference_mode():
            attention(q, k, v, **options)

    return run


def counted(call):
    for _ in range(5):
        call()
    os.getppid()
    for _ in range(int(sys.argv[1])):
        call()
    os.getppid()


theirs, ours = F.scaled_dot_product_attention, isentrope.attention
counted(forward(theirs, 1))
counted(forward(ours, 1))
counted(forward(ours, 1, return_stats=("entropy",)))
counted(forward(theirs, 16))
counted(forward(ours, 16))
for dim in (64, 8):
    for causal in (False, True):
        for dense in (True, False):
            counted(gradients(theirs, dim, causal, dense))
            counted(gradients(ours, dim, causal, dense))
"""


@pytest.fixture(scope="module")
def instructions(tmp_path_factory):
    """Returns the instructions of a call, in the program's order."""
    if not shutil.which("valgrind"):
        pytest.skip("valgrind counts instructions")
    folder = tmp_path_factory.mktemp("callgrind")
    command = ["valgrind", "--tool=callgrind", "--dump-before=getppid", f"--callgrind-out-file={folder}/out"]
    subprocess.run([*command, sys.executable, "-c", PROGRAM, str(CALLS)], check=True, capture_output=True)
    dumps = sorted(folder.glob("out.*"), key=lambda path: int(path.suffix[1:]))
    totals = [int(re.search(r"^totals: (\d+)", path.read_text(), re.MULTILINE)[1]) for path in dumps]
    return [total / CALLS for total in totals[1::2]]


def test_calls_without_gradients(instructions):
    theirs_1, ours_1, entropy_1, theirs_16, ours_16 = instructions[:5]
    print(ours_1 / theirs_1, entropy_1 / theirs_1, ours_16 / theirs_16)
    assert ours_1 / theirs_1 < 1.4  # 1.26
    assert entropy_1 / theirs_1 < 1.6  # 1.47
    assert ours_16 / theirs_16 < 1.2  # 1.08


def test_gradients_of_16_rows(instructions):
    pairs = instructions[5:]
    ratios = [ours / theirs for theirs, ours in zip(pairs[::2], pairs[1::2], strict=True)]
    print(ratios)
    assert ratios[0] < 1.2  # 1.13
    assert max(ratios) < 1.35  # 1.25
