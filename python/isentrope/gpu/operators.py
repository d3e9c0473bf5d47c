"""Implements the library's operators by the kernels of this package."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from isentrope.gpu import launch, launch_derivatives, launch_received, launch_write


def on_its_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes the tensors' device current, because Triton launches on the current device."""

    def run(q: Tensor, *rest: Any) -> Any:
        if q.is_cpu:  # interpreted
            return function(q, *rest)
        module = torch.get_device_module(q.device)
        if module.current_device() == q.device.index:
            return function(q, *rest)
        with module.device(q.device):
            return function(q, *rest)

    return run


_IMPLEMENTATIONS = {
    "attention": on_its_device(launch.attention),
    "attention.plain": on_its_device(launch.attention_plain),
    "attention_backward": on_its_device(launch.attention_backward),
    "attention_backward.plain": on_its_device(launch.attention_backward_plain),
    "attention_second_order": on_its_device(launch_derivatives.second_order),
    "attention_tangent": on_its_device(launch_derivatives.tangent),
    "decode": on_its_device(launch.decode),
    "row_lengths": on_its_device(launch.row_lengths),
    "write_cache": on_its_device(launch_write.write_cache),
    **{name: on_its_device(getattr(launch_received, name)) for name in ("received", "received_paged", "weights_at", "weights_at_paged")},
}
# Kept alive, because their registrations end with them.
_LIBRARIES: list[torch.library.Library] = []


def implementation(name: str) -> Any:
    """Returns the implementation of isentrope::name, with its schema."""
    return _IMPLEMENTATIONS[name]


def register(key: str) -> None:
    """Registers the implementations for a dispatch key, replacing earlier ones."""
    library = torch.library.Library("isentrope", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an earlier registration is replaced
        for name, function in _IMPLEMENTATIONS.items():
            library.impl(name, function, key, allow_override=True)
    _LIBRARIES.append(library)
