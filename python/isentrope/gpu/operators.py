"""The operators of the library, implemented by the kernels of this package."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from isentrope.gpu import launch

_IMPLEMENTATIONS = {
    "attention": launch.attention,
    "attention_backward": launch.attention_backward,
    "decode": launch.decode,
    "row_lengths": launch.row_lengths,
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
