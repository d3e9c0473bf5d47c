"""What type checkers are told is what the functions take."""

import inspect
import typing
from pathlib import Path

from isentrope import functions

OVERLOADED = ("attention", "attention_rows", "varlen_attention", "decode")


def stubs(monkeypatch):
    """Every signature of functions.pyi."""
    found = []
    monkeypatch.setattr(typing, "overload", lambda function: found.append(function) or function)
    names: dict = {"__name__": "isentrope.functions"}
    exec(Path(functions.__file__).with_suffix(".pyi").read_text(), names)
    return [*found, names["row_lengths"]]


def test_stubs_have_the_arguments_of_the_functions(monkeypatch):
    signatures = stubs(monkeypatch)
    assert [x.__name__ for x in signatures] == [name for name in OVERLOADED for _ in range(2)] + ["row_lengths"]
    for stub in signatures:
        *told, options = inspect.signature(stub).parameters.values()
        (keywords,) = options.annotation.__args__
        names = {parameter.name for parameter in told} | set(keywords.__annotations__)
        assert names == set(inspect.signature(getattr(functions, stub.__name__)).parameters), stub.__name__
