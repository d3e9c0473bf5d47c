"""Selects the calls of torch's function that the operator can compute."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def is_taken(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float, is_causal: bool) -> bool:
    """Returns whether the operator can compute the call. Otherwise torch does, errors included."""
    tensors = (q, k, v)
    if q.dtype not in DTYPES or any(x.dtype != q.dtype or x.device != q.device for x in tensors):
        return False
    if not 0 <= dropout_p < 1:
        return False
    if any(x.is_nested for x in tensors):
        return all(x.is_nested for x in tensors) and mask is None and not is_causal
    if any(x.dim() < 2 or x.shape[-1] == 0 for x in tensors):
        return False
    # torch refuses masks of other types.
    return mask is None or not is_causal and mask.dtype in (torch.bool, torch.float32, q.dtype)


def warn_of_own(rule: str, q: Tensor) -> None:
    """Warns that torch computes a call without the active rule. Without columns every scale gives the same weights."""
    if rule != "standard" and (q.is_nested or q.shape[-1] > 0):
        warnings.warn(
            f"[sdpa.activate] torch computes this call of {q.dtype} on {q.device} itself, under 1/sqrt(dim) and not under "
            f"{rule}: call isentrope.attention",
            stacklevel=2,
        )
