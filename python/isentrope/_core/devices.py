"""Operators for GPU tensors: Triton kernels, loaded by the first call that needs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_LIBRARY = torch.library.Library("isentrope", "IMPL")  # kept alive, because its registrations end with it


def register(implementation: Callable[[str], Any]) -> None:
    """Registers implementation(name) as the operator of that name on GPUs. It may import what it needs."""
    names = (
        "attention", "attention.plain", "attention_backward", "attention_backward.plain", "attention_second_order",
        "attention_tangent", "decode", "received", "received_paged", "row_lengths", "weights_at", "weights_at_paged", "write_cache",
    )  # fmt: skip
    for name in names:
        for key in ("CUDA", "XPU"):
            _LIBRARY.impl(name, on_first_call(implementation, name), key)


def on_first_call(implementation: Callable[[str], Any], name: str) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        try:
            operator = implementation(name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "triton":
                raise
            raise ModuleNotFoundError(
                "[attention] tensors on a GPU need triton, which GPU builds of torch include; got an "
                "environment without: pip install triton, or move the call to the CPU",
                name="triton",
            ) from error
        return operator(*args)

    return run
