"""The names of the package that need torch, and the registration of what the operators need."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

__all__ = [
    "AttentionState", "Monitor", "QKClip", "SSMax", "ScaleRule", "Statistics", "attention", "attention_rows", "calibrate", "decode",
    "inspect", "merge", "quantize", "received", "row_lengths", "scaled_dot_product_attention", "sdpa", "varlen_attention",
    "weights_at", "write_cache",
]  # fmt: skip

try:
    with warnings.catch_warnings():
        # Nothing here needs numpy, and `isentrope doctor` says whether it is there.
        warnings.filterwarnings("ignore", "Failed to initialize NumPy")
        from torch import Tensor as _Tensor  # noqa: F401, torch itself, because a folder named torch imports as an empty package
except ImportError as _error:
    raise ModuleNotFoundError(
        "isentrope needs PyTorch 2.10 or later: pip install torch (the command line works without)",
        name="torch",
    ) from _error

import isentrope.sdpa as sdpa
from isentrope._core import autograd as _autograd  # noqa: F401, registers gradients
from isentrope._core import fakes as _fakes  # noqa: F401, registers shapes of results
from isentrope._core import key_statistics as _key_statistics  # noqa: F401, registers theirs
from isentrope._core.after_import import after_import as _after_import
from isentrope._core.library import KERNELS as _KERNELS
from isentrope.functions import attention, attention_rows, decode, row_lengths, varlen_attention
from isentrope.rules import ScaleRule
from isentrope.statistics import Statistics

if TYPE_CHECKING:
    from isentrope.caches import quantize, write_cache
    from isentrope.key_statistics import received, weights_at
    from isentrope.models.calibrate import Calibration
    from isentrope.models.inspect import Inspection
    from isentrope.models.monitor import Monitor
    from isentrope.models.qk_clip import QKClip
    from isentrope.sdpa.drop_in import scaled_dot_product_attention
    from isentrope.ssmax import SSMax
    from isentrope.states import AttentionState, merge


def _in_triton(name: str) -> Callable[..., Any]:
    """Returns an operator for GPU tensors, whose kernels are loaded by the first call."""

    def run(*args: Any) -> Any:
        try:
            from isentrope.gpu.operators import implementation

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


for _name in (
    "attention", "attention.plain", "attention_backward", "attention_backward.plain", "attention_second_order",
    "attention_tangent", "decode", "received", "received_paged", "row_lengths", "weights_at", "weights_at_paged", "write_cache",
):  # fmt: skip
    for _key in ("CUDA", "XPU"):
        _KERNELS.impl(_name, _in_triton(_name), _key)


def _shard() -> None:
    try:
        from isentrope._core import dtensor  # noqa: F401
    except ImportError:  # experimental in torch: versions without it need no support for DTensors
        pass


# Delayed, because importing DTensor, which imports sympy, would take most of this package's import time.
_after_import("torch.distributed.tensor", _shard)


def inspect(*args: Any, **kwargs: Any) -> Inspection:
    """Measures how focused each head is; see `isentrope.models.inspect.inspect`. Requires transformers."""
    from isentrope.models.inspect import inspect as run

    return run(*args, **kwargs)


def calibrate(*args: Any, **kwargs: Any) -> Calibration:
    """Measures the gain of a stretched model; see `isentrope.models.calibrate.calibrate`. Requires transformers."""
    from isentrope.models.calibrate import calibrate as run

    return run(*args, **kwargs)


# Imported by their first use, because most programs do not use them.
_LATER = {
    "AttentionState": "states", "Monitor": "models.monitor", "QKClip": "models.qk_clip", "SSMax": "ssmax", "merge": "states",
    "quantize": "caches", "received": "key_statistics", "scaled_dot_product_attention": "sdpa.drop_in",
    "weights_at": "key_statistics", "write_cache": "caches",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(f"isentrope.{_LATER[name]}"), name)
    raise AttributeError(f"module 'isentrope' has no attribute {name!r}")
