"""Modules imported by `import isentrope`: few, unless more are used."""

import subprocess
import sys

import pytest


def run(code):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_little_is_imported_beside_torch():
    code = "import sys, torch; a = set(sys.modules); import isentrope; print(*sorted(set(sys.modules) - a), sep='\\n')"
    found = run(code).split()
    others = [name for name in found if not name.startswith("isentrope")]
    assert "isentrope.functions" in found
    assert not {"sympy", "torch.distributed.tensor", "torch._dynamo", "transformers", "triton"} & set(others)
    assert len(others) < 20, others
    assert len(found) - len(others) < 32, found


@pytest.mark.parametrize(
    "code",
    [
        "import isentrope; import torch.distributed.tensor",
        pytest.param("import torch.distributed.tensor; import isentrope", marks=pytest.mark.long),
    ],
)
def test_dtensors_are_known_whoever_is_imported_first(code):
    code += "; import sys; assert 'isentrope._core.dtensor' in sys.modules; from torch.distributed.tensor import DTensor"
    code += "; import isentrope._core.library as o; p = DTensor._op_dispatcher.sharding_propagator"
    run(code + "; assert o.OPS.attention.default in p.op_strategy_funcs")
