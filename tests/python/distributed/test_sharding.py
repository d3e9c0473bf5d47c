"""Sharding and gathering sequences; the program of the documentation."""

import re
import subprocess
import sys

import pytest
import torch
from cases import rows_of
from programs import ROOT
from ranks import over

from isentrope import distributed


@pytest.mark.parametrize("ranks", [2, *(pytest.param(ranks, marks=pytest.mark.long) for ranks in (1, 4))])
@over()
def test_there_and_back(rank, ranks):
    for layout in ("contiguous", "zigzag"):
        for length in (0, 1, 7, 12):
            x = torch.arange(2 * length * 3).view(2, length, 3)
            part = distributed.shard(x, 1, layout=layout)
            assert torch.equal(part, x[:, rows_of(rank, ranks, length, layout)])
            assert torch.equal(distributed.gather(part, -2, layout=layout, sequence_length=length), x)
    # Each rank has a loss on the whole sequence, so the gradients of its part are summed over ranks.
    part = torch.randn(4, requires_grad=True)
    distributed.gather(part, 0).mul(torch.arange(4.0 * ranks) * (rank + 1)).sum().backward()
    assert torch.equal(part.grad, torch.arange(4.0 * rank, 4.0 * rank + 4) * sum(range(1, ranks + 1)))
    with pytest.raises(ValueError, match="tensor must have"):
        distributed.gather(part, 0, sequence_length=100 * ranks)


@pytest.mark.long
def test_the_program_of_the_documentation_runs(tmp_path):
    page = ROOT / "docs/distributed.md"
    (program,) = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)[:1]
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(tmp_path / "program.py")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    lines = re.findall(r"rank (\d): 500 rows of 1000, off by (\de[-+]\d\d)", result.stdout)
    assert sorted(rank for rank, _ in lines) == ["0", "1"], result.stdout
    assert all(float(error) < 1e-5 for _, error in lines)
