"""Modules imported by `import isentrope`: few, unless more are used."""

import os
import subprocess
import sys

import pytest

import isentrope


def started(code, **environment):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment)


def run(code, **environment):
    result = started(code, **environment)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_little_is_imported_beside_torch():
    code = "import sys, torch; a = set(sys.modules); import isentrope; print(*sorted(set(sys.modules) - a), sep='\\n')"
    found = run(code).split()
    others = [name for name in found if not name.startswith("isentrope")]
    assert "isentrope.functions" in found and "isentrope.gpu" not in found
    assert not {"sympy", "torch.distributed.tensor", "torch._dynamo", "transformers", "triton"} & set(others)
    assert len(others) < 20, others
    assert len(found) - len(others) < 32, found


@pytest.mark.long  # the tests of several processes import isentrope first
@pytest.mark.parametrize("code", ["import isentrope; import torch.distributed.tensor", "import torch.distributed.tensor; import isentrope"])
def test_dtensors_are_known_whoever_is_imported_first(code):
    code += "; import sys; assert 'isentrope._core.dtensor' in sys.modules; from torch.distributed.tensor import DTensor"
    code += "; import isentrope._core.library as o; p = DTensor._op_dispatcher.sharding_propagator"
    run(code + "; assert o.OPS.attention.default in p.op_strategy_funcs")


def without_torch(folder):
    """Returns the environment of a process that has no torch."""
    (folder / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')")
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", ""), isentrope.__path__[0] + "/.."])}


def test_the_package_is_imported_without_torch(tmp_path):
    code = "import sys, isentrope; print('torch' in sys.modules, hasattr(isentrope, '__wrapped__'))"
    assert run(code, **without_torch(tmp_path)).split() == ["False", "False"]
    code = "import isentrope\ntry: from isentrope import hf\nexcept ModuleNotFoundError as error: print(error.name)"
    assert run(code, **without_torch(tmp_path)).split() == ["torch"]
    result = started("import isentrope; isentrope.attention", **without_torch(tmp_path))
    assert result.returncode == 1 and "pip install torch" in result.stderr


ORDERS = (
    "import isentrope._core.library", "import torch, isentrope", "import isentrope, torch", "from isentrope import *", "import isentrope.hf",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("code", ORDERS)
def test_the_operators_are_registered_whatever_is_imported_first(code):
    code += "; import torch; q = torch.zeros(1, 1, 2, 4); torch.ops.isentrope.attention.plain(q, q, q, 'standard', 0, 0)"
    code += "; import isentrope; print(*isentrope.__all__); assert set(isentrope.__all__) <= set(dir(isentrope))"
    assert run(code).split() == isentrope.__all__


def test_a_torch_that_is_too_old_can_still_be_imported(tmp_path):
    (tmp_path / "torch.py").write_text("Tensor = None")
    code = "import isentrope, torch\ntry: isentrope.attention\nexcept Exception as error: print(type(error).__name__)"
    path = os.pathsep.join([str(tmp_path), isentrope.__path__[0] + "/.."])
    assert run(code, PYTHONPATH=path).strip() in {"AttributeError", "ModuleNotFoundError", "ImportError"}


def test_an_unknown_name_is_named():
    with pytest.raises(AttributeError, match="module 'isentrope' has no attribute 'atention'"):
        _ = isentrope.atention
