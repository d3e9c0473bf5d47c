"""The operators of the library, implemented by the kernels of this package."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from isentrope.gpu import launch


def on_its_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """Triton launches on the current device, which need not be the one where tensors lie."""

    def run(q: Tensor, *rest: Any) -> Any:
        if q.is_cpu:  # interpreted
            return function(q, *rest)
        with torch.get_device_module(q.device).device(q.device):
            return function(q, *rest)

    return run


def _goes_the_long_way(*_: Any) -> Any:
    raise ValueError("[attention] plain calls are the CPU's own; got one for other kernels")


_IMPLEMENTATIONS = {
    "attention": on_its_device(launch.attention),
    "attention.plain": _goes_the_long_way,
    "attention_backward": on_its_device(launch.attention_backward),
    "decode": on_its_device(launch.decode),
    "row_lengths": on_its_device(launch.row_lengths),
}
# A registration lasts as long as its library.
_LIBRARIES: list[torch.library.Library] = []


def implementation(name: str) -> Any:
    """Of the operator isentrope::name, with its schema."""
    return _IMPLEMENTATIONS[name]


def register(key: str) -> None:
    """Makes these the implementations for a dispatch key, whatever was there before."""
    library = torch.library.Library("isentrope", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there was another one
        for name, function in _IMPLEMENTATIONS.items():
            library.impl(name, function, key, allow_override=True)
    _LIBRARIES.append(library)
