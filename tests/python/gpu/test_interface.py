"""What the package shows of itself, and what it knows of the library."""

import inspect
import subprocess
import sys

import in_float32
import pytest
import torch
import typing_extensions

import isentrope
import isentrope.gpu
from isentrope._core.call import call_of
from isentrope.gpu.operands import Operands


@pytest.mark.parametrize("name", isentrope.gpu.__all__)
def test_functions_have_the_signatures_of_the_package(name):
    function, own = getattr(isentrope, name), getattr(isentrope.gpu, name)
    assert own is not function
    assert inspect.signature(own) == inspect.signature(function) and own.__doc__ == function.__doc__
    assert typing_extensions.get_overloads(own) == typing_extensions.get_overloads(function) != []


@pytest.mark.parametrize("grown, message", [
    ("library.DEFAULTS['head_mask'] = None", "know every argument of the library; got head_mask"),
    ("library.BITS['kurtosis'] = 1 << 10", "know every statistic of the library; got kurtosis"),
    ("library.STATISTICS[6]['differentiable'] = True", "know every gradient of a statistic of the library; got max_logit"),
])  # fmt: skip
def test_what_the_kernels_do_not_know_is_an_error(grown, message):
    """They would ignore what the library has learnt since."""
    code = f"from isentrope._core import library\n{grown}\nimport isentrope.gpu"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.splitlines()[-1].endswith(message), done.stderr


def test_an_argument_too_many_is_an_error():
    """As when an operator's own come in front of those that all of them share."""
    q = torch.zeros(1, 1, 2, 16)
    with pytest.raises(ValueError, match="zip"):
        Operands((*call_of(q, q, q), 1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_in_float32_are_those_before_rounding(dtype):
    q, k, v = (torch.randn(1, heads, rows, 16).to(dtype) for heads, rows in ((4, 19), (2, 31), (2, 31)))
    in_float32.are_those_before_rounding(q, k, v)
