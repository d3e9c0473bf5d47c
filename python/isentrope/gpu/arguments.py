"""Numbers and placeholders of a call in the form of the kernels' arguments."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from torch import Tensor

from isentrope._core.library import AXES, BITS, STATISTICS, SUPPORT, refuse_unknown
from isentrope._core.masks import Masks
from isentrope.gpu.kernels.gradient_rows import TERMS_OF
from isentrope.gpu.kernels.results import MOMENTS, Wanted
from isentrope.gpu.operands import Operands

# Fused multiply-adds, which Triton from 3.10 on enables only on request.
FUSED = {"enable_fp_fusion": True}
MASK_LISTS = {name: f"HAS_{name.upper()}" for name in Masks._fields if AXES[name]}
# Statistics that need sums over tiles besides that of lse.
_SUMMED = tuple(s["name"].upper() for s in STATISTICS if s["sums"])
# Statistics computed from a row's sums.
_STATISTICS = tuple(name.lower() for name in Wanted._fields if name not in ("SUPPORT", "MOMENTS"))
refuse_unknown(
    "isentrope.gpu: the kernels", "statistic of the library", BITS, (*_STATISTICS, "lambda_", "support")
)
refuse_unknown(
    "isentrope.gpu: the kernels", "gradient of a statistic of the library",
    (s["name"] for s in STATISTICS if s["differentiable"]), TERMS_OF,
)  # fmt: skip


def blocks_of(count: int, size: int) -> int:
    """Number of blocks of a size that hold so many."""
    return -(-count // size)


def slice_of(name: str, wanted: int) -> int:
    """Returns the slice of a statistic in their tensor; -1 if it was not requested."""
    bit = BITS[name]
    return (wanted & (bit - 1)).bit_count() if wanted & bit else -1


@cache
def wanted_of(wanted: int) -> Wanted:
    slices = {name.upper(): slice_of(name, wanted) for name in _STATISTICS}
    moments = max(count if wanted & BITS[name] else 0 for name, count in MOMENTS.items())
    return Wanted(**slices, SUPPORT=bool(wanted & SUPPORT), MOMENTS=moments)


def beside_lse(wanted: Wanted) -> bool:
    """Returns whether a statistic is requested that needs sums over tiles besides that of lse."""
    return any(getattr(wanted, name) >= 0 for name in _SUMMED)


def strides(tensor: Tensor | None, count: int = 4) -> tuple[int, ...]:
    return (0,) * count if tensor is None else tensor.stride()


def some(tensor: Tensor | None, other: Tensor) -> Tensor:
    """Returns `tensor`, or `other` as a placeholder: kernels take a pointer for every argument, even if unused."""
    return other if tensor is None else tensor


def dropout(call: Operands) -> tuple[Any, ...]:
    """Returns the seed, the least bits of a kept weight, its factor, and the offsets of positions."""
    p = ctypes.c_float(call.dropout_p).value
    seed = call.q if call.dropout_seed is None else call.dropout_seed
    return seed, round(p * 2**32), 1 / (1 - p), call.query_offset, call.key_offset


def with_repair(wrong: Tensor | None, constants: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Returns the constants of a kernel's launches: the first, then the one in repair mode for programs that had non-finite sums.

    wrong: flags of the programs; None if none is flagged. Programs whose sums were finite return from the repair launch at once;
    checking first would synchronize with the device.
    """
    first = constants | {"REPAIR": False}
    return (first,) if wrong is None else (first, constants | {"REPAIR": True})
