"""The operator on GPUs, in Triton: the same functions, rules, masks, statistics and gradients.

`isentrope.attention` and its siblings come here by themselves with tensors on a CUDA or XPU device. The functions below
are those, for tensors that must not be computed elsewhere. Where TRITON_INTERPRET=1 is set before torch is imported,
Triton runs its kernels on the CPU: importing this package then makes them the implementation for CPU tensors, in the
whole process, which is how their numbers are tested without a GPU (docs/gpu.md).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from isentrope import functions as _functions
from isentrope.gpu import operators as _operators
from isentrope.gpu.tile import INTERPRETED as _INTERPRETED

if _INTERPRETED.value:
    _operators.register("CPU")


def _checked(function: str, q: Any) -> None:
    if isinstance(q, Tensor) and q.is_cpu and not _INTERPRETED.value:
        raise ValueError(
            f"[{function}] q must lie on a CUDA or XPU device, or TRITON_INTERPRET=1 be set; got {q.device}"
        )


def attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
    """`isentrope.attention` by the kernels of this package."""
    _checked("attention", q)
    return _functions.attention(q, k, v, **options)


def attention_rows(q: Tensor, k: Tensor, v: Tensor, lambda_: Tensor, **options: Any) -> Any:
    """`isentrope.attention_rows` by the kernels of this package."""
    _checked("attention", q)
    return _functions.attention_rows(q, k, v, lambda_, **options)


def varlen_attention(q: Tensor, k: Tensor, v: Tensor, *starts: Any, **options: Any) -> Any:
    """`isentrope.varlen_attention` by the kernels of this package."""
    _checked("varlen_attention", q)
    return _functions.varlen_attention(q, k, v, *starts, **options)


def decode(q: Tensor, k_cache: Tensor, v_cache: Tensor, *pages: Any, **options: Any) -> Any:
    """`isentrope.decode` by the kernels of this package."""
    _checked("decode", q)
    return _functions.decode(q, k_cache, v_cache, *pages, **options)


__all__ = ["attention", "attention_rows", "decode", "varlen_attention"]
