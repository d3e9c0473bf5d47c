"""The package's public interface, and its knowledge of the library."""

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
    function, gpu_function = getattr(isentrope, name), getattr(isentrope.gpu, name)
    assert gpu_function is not function
    assert inspect.signature(gpu_function) == inspect.signature(function) and gpu_function.__doc__ == function.__doc__
    overloads = typing_extensions.get_overloads(function)
    assert typing_extensions.get_overloads(gpu_function) == overloads
    assert bool(overloads) == ("return_stats" in inspect.signature(function).parameters)


@pytest.mark.parametrize("grown, message", [
    ("library.DEFAULTS['head_mask'] = None", "know every argument of the library; got head_mask"),
    pytest.param("library.STATISTICS.append(library.STATISTICS[1] | {'name': 'kurtosis'})", "know every statistic of the library; got kurtosis", marks=pytest.mark.long),
    pytest.param("library.STATISTICS[6]['differentiable'] = True",
                 "know every gradient of a statistic of the library; got max_logit", marks=pytest.mark.long),
])  # fmt: skip
def test_what_the_kernels_do_not_know_is_an_error(grown, message):
    """Otherwise arguments that were added to the library would be ignored."""
    code = f"from isentrope._core import library\n{grown}\nimport isentrope.gpu"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 1 and process.stderr.splitlines()[-1].endswith(message), process.stderr


def test_an_argument_too_many_is_an_error():
    """As if an operator's own arguments came before the common ones."""
    q = torch.zeros(1, 1, 2, 16)
    with pytest.raises(ValueError, match="zip"):
        Operands((*call_of(q, q, q), 1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_in_float32_are_those_before_rounding(dtype):
    q, k, v = (torch.randn(1, heads, rows, 16).to(dtype) for heads, rows in ((4, 19), (2, 31), (2, 31)))
    in_float32.are_those_before_rounding(q, k, v)


def strided(numbers):
    """The same numbers, with others between them."""
    return torch.stack([numbers, numbers.flip(0)], -1)[..., 0]


@pytest.mark.parametrize("options", [
    {"key_begin": torch.tensor([1, 3])}, {"key_end": torch.tensor([5, 8])}, {"sinks": torch.randn(4)},
    {"prefix_keys": torch.tensor([1, 9]), "causal": True},
], ids=lambda options: next(iter(options)))  # fmt: skip
def test_lists_may_have_any_stride(options):
    q, k, v = (torch.randn(2, heads, rows, 16) for heads, rows in ((4, 5), (2, 9), (2, 9)))
    as_given = {name: strided(x) if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    assert torch.equal(isentrope.attention(q, k, v, **as_given), isentrope.attention(q, k, v, **options))


def test_documents_and_pages_may_have_any_stride():
    q, k, v = (torch.randn(rows, heads, 16) for heads, rows in ((4, 5), (2, 9), (2, 9)))
    starts = torch.tensor([0, 2, 5]), torch.tensor([0, 4, 9])
    want = isentrope.varlen_attention(q, k, v, *starts)
    assert torch.equal(isentrope.varlen_attention(q, k, v, *map(strided, starts)), want)
    q, cache = torch.randn(2, 4, 1, 16), torch.randn(9, 2, 4, 16)
    table, used = torch.tensor([[3, 1, 0], [8, 2, 7]], dtype=torch.int32), torch.tensor([12, 7])
    want = isentrope.decode(q, cache, cache, table, used)
    assert torch.equal(isentrope.decode(q, cache, cache, table.t().contiguous().t(), strided(used)), want)
