"""The operator on GPUs, in Triton: the same functions, rules, masks, statistics and gradients.

`isentrope.attention` and the other functions use this package for tensors on a CUDA or XPU device. The functions below
are the same, but raise an error for other tensors. If TRITON_INTERPRET=1 is set before torch is imported, Triton runs
its kernels on the CPU. Importing this package then makes them the implementation for CPU tensors in the whole process.
Tests compare their results so without a GPU (docs/contributors/gpu.md).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from torch import Tensor

from isentrope import caches as _caches
from isentrope import functions as _functions
from isentrope.gpu import operators as _operators
from isentrope.gpu.kernels.tile import INTERPRETED as _INTERPRETED

if _INTERPRETED.value:
    _operators.register("CPU")

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _by_kernels(function: _Function) -> _Function:
    """Returns the package's function with its signature, refusing tensors that the kernels do not support."""

    @functools.wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        q = args[0] if args else options.get("q", options.get("k"))
        if isinstance(q, Tensor) and q.is_cpu and not _INTERPRETED.value:
            raise ValueError(
                f"[{function.__name__}] q must be on a CUDA or XPU device, or TRITON_INTERPRET=1 be set; got {q.device}"
            )
        return function(*args, **options)

    return cast(_Function, run)


attention = _by_kernels(_functions.attention)
attention_rows = _by_kernels(_functions.attention_rows)
varlen_attention = _by_kernels(_functions.varlen_attention)
decode = _by_kernels(_functions.decode)
write_cache = _by_kernels(_caches.write_cache)

__all__ = ["attention", "attention_rows", "decode", "varlen_attention", "write_cache"]
