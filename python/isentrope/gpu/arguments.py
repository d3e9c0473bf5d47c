"""Numbers and placeholders of a call in the form of the kernels' arguments."""

from __future__ import annotations

from collections import namedtuple
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from isentrope._core.library import AXES, BITS, STATISTICS, SUPPORT, refuse_unknown
from isentrope._core.masks import Masks
from isentrope.gpu.kernels.gradient_rows import Given, load_upstream
from isentrope.gpu.kernels.results import write_rows

# Fused multiply-adds, which Triton from 3.10 on enables only on request.
FUSED = {"enable_fp_fusion": True}
MASK_LISTS = {name: f"HAS_{name.upper()}" for name in Masks._fields if AXES[name]}
# Statistics that need sums over tiles besides that of lse.
_SUMMED = tuple(s["name"].upper() for s in STATISTICS if s["sums"])
# Statistics computed from a row's sums.
_STATISTICS = tuple(s["name"] for s in STATISTICS if s["from_sums"])
# Terms that the gradient of each statistic adds, besides the base.
TERMS_OF = {s["name"]: {term.upper() for term in s["gradient"]} for s in STATISTICS if s["differentiable"]}


def _names_in(kernel: Any) -> set[str]:
    return {name.lower() for name in kernel.fn.__code__.co_names}


refuse_unknown(
    "isentrope.gpu: the kernels", "statistic of the library", _STATISTICS, _names_in(write_rows)
)
refuse_unknown(
    "isentrope.gpu: the kernels", "gradient of a statistic of the library", TERMS_OF, _names_in(load_upstream)
)
refuse_unknown("isentrope.gpu: the kernels", "term of a gradient", set().union(*TERMS_OF.values()), Given._fields)

if TYPE_CHECKING:
    from isentrope._core.libraries import Listed as _Wanted
else:
    _Wanted = namedtuple("Wanted", [*map(str.upper, _STATISTICS), "SUPPORT", "MOMENTS"])


class Wanted(_Wanted):
    """Slice of each statistic in their tensor, -1 if not requested, whether SUPPORT is requested, and the number of
    MOMENTS of logits they need."""

    __slots__ = ()


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
    moments = max(len({"s1", "s1_prime"}.intersection(s["sums"])) if wanted & BITS[s["name"]] else 0 for s in STATISTICS)
    return Wanted(**slices, SUPPORT=bool(wanted & SUPPORT), MOMENTS=moments)


def beside_lse(wanted: Wanted) -> bool:
    """Returns whether a statistic is requested that needs sums over tiles besides that of lse."""
    return any(getattr(wanted, name) >= 0 for name in _SUMMED)


class _Names(dict[str, list[str]]):
    """Names of strides by arrays: stride_qb, stride_qh, ... for "q"."""

    axes: ClassVar = {"m": "bhqk", "b": "bhqk", "tb": "bhqk", "l": "bhq"}

    def __missing__(self, arrays: str) -> list[str]:
        self[arrays] = names = [f"stride_{array}{axis}" for array in arrays.split() for axis in self.axes.get(array, "bhnd")]
        return names


_NAMES = _Names()
_NOTHING = (0, 0, 0, 0)


def strides(arrays: str, *tensors: Tensor | None) -> dict[str, int]:
    """Returns the strides of tensors by their names in the kernels, which begin with the arrays' names; 0 without a tensor."""
    return dict(zip(_NAMES[arrays], [stride for x in tensors for stride in (_NOTHING if x is None else x.stride())]))


def some(tensor: Tensor | None, other: Tensor) -> Tensor:
    """Returns `tensor`, or `other` as a placeholder: kernels take a pointer for every argument, even if unused."""
    return other if tensor is None else tensor


def with_repair(wrong: Tensor | None, constants: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Returns the constants of a kernel's launches: the first, then the one in repair mode for programs that had non-finite sums.

    wrong: flags of the programs; None if none is flagged. Programs whose sums were finite return from the repair launch at once;
    checking first would synchronize with the device.
    """
    first = constants | {"REPAIR": False}
    return (first,) if wrong is None else (first, constants | {"REPAIR": True})
