"""Loads the handlers of XLA, checks calls while they are traced, and reads the library's list of statistics."""

from __future__ import annotations

import ctypes
import json
from collections import namedtuple
from typing import TYPE_CHECKING, Any

import jax

from isentrope._core.libraries import name_in_python, path_of

_LIBRARY = ctypes.CDLL(str(path_of("isentrope_jax")))
_LIBRARY.isentrope_jax_statistics.restype = ctypes.c_char_p
_LIBRARY.isentrope_jax_check.restype = ctypes.c_char_p
_LIBRARY.isentrope_jax_check.argtypes = [ctypes.c_char_p]

_ON_DEVICE = ("forward_on_device", "backward_on_device")
for _name in ("forward", "tangent", "backward", "second_order", *_ON_DEVICE):
    _handler = jax.ffi.pycapsule(getattr(_LIBRARY, f"isentrope_jax_{_name}"))
    jax.ffi.register_ffi_target(f"isentrope_{_name}", _handler, platform="CUDA" if _name in _ON_DEVICE else "cpu")

_LIST: list[dict[str, Any]] = json.loads(_LIBRARY.isentrope_jax_statistics())
STATISTICS: tuple[str, ...] = tuple(statistic["name"] for statistic in _LIST)
# Statistics with derivatives, and the results of the forward pass that these need, besides output and lse.
NEEDS: dict[str, tuple[str, ...]] = {s["name"]: tuple(s["needs"]) for s in _LIST if s["differentiable"]}


if TYPE_CHECKING:
    from isentrope._core.libraries import Listed as _Named
else:
    _Named = namedtuple("Statistics", map(name_in_python, STATISTICS))


class Statistics(_Named):
    """Statistics of every row, each [batch, queries, heads], or None if it was not requested.

    `isentrope.Statistics` tells what each is, with its unit and what it is for a row without keys. All are float32, or float64
    for inputs of float64, but `support`, which is int32. max_logit, lambda_ and support have derivatives of 0, as under
    `jax.lax.stop_gradient`.
    """

    __slots__ = ()


def refuse(call: str) -> None:
    """Raises ValueError if the library refuses a call, given as JSON with shapes and types of its arrays."""
    message = _LIBRARY.isentrope_jax_check(call.encode())
    if message is not None:
        raise ValueError(message.decode())
