"""Type annotations agree with the functions' arguments."""

import inspect
import sys
import typing

import pytest
import torch
import typing_extensions

import isentrope
from isentrope._core.options import KNOWN
from isentrope._core.call import Call
from isentrope._core.library import OPS, STATISTICS


def test_overloads_have_the_arguments_of_the_functions():
    for name, known in {name: known for name, known in KNOWN.items() if "." not in name}.items():
        function = getattr(isentrope, name)
        stubs = typing_extensions.get_overloads(function) or [function]
        assert len(stubs) == {"received": 1, "row_lengths": 1, "weights_at": 1, "decode": 3}.get(name, 2)
        for stub in stubs:
            hints = typing.get_type_hints(stub, vars(sys.modules[function.__module__]) | {"Unpack": typing_extensions.Unpack})
            *listed, options = inspect.signature(stub).parameters
            (keywords,) = typing.get_args(hints[options])
            assert set(keywords.__annotations__) == known
            assert [x for x in listed if x not in inspect.signature(function).parameters] == []


def test_an_argument_that_no_function_has_is_named():
    q = torch.randn(1, 1, 2, 4)
    with pytest.raises(TypeError, match=r"attention\(\) got an unexpected keyword argument 'casual'"):
        isentrope.attention(q, q, q, casual=True)
    with pytest.raises(TypeError, match=r"row_lengths\(\) got an unexpected keyword argument 'sinks'"):
        isentrope.row_lengths(q, q, sinks=None)


def test_every_argument_of_the_schema_is_a_field_of_the_call_and_an_option_of_some_function():
    schema = [argument.name for argument in OPS.attention.default._schema.arguments]
    assert schema == [*Call._fields, "wanted"]
    # Arguments with other names in the functions, or set by them.
    renamed = {"q", "k", "v", "lambda_", "window_left", "window_right", "cu_seqlens_q", "cu_seqlens_k"}
    renamed |= {"compiled_scale", "compiled_soft_cap"}
    assert set(Call._fields) - renamed == KNOWN["attention"] - {"scale", "window_size", "is_causal", "enable_gqa"}


def test_the_statistics_are_those_of_the_library():
    assert isentrope.Statistics._fields == tuple(statistic["name"] for statistic in STATISTICS)
    assert STATISTICS[-1]["name"] == "support"  # the operators return it separately
