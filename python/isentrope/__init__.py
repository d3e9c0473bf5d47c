"""Attention whose scale follows the number of keys each row sees, with the entropy of every row.

    z_j = lambda(n, d) q.k_j          p = softmax(z)          o = sum_j p_j v_j

`attention`, `varlen_attention` and `decode` compute it. `ScaleRule` says how lambda depends on n, the number of keys that a
row sees. `Statistics` describe each row. `isentrope.hf` registers the attention with transformers. All of them need torch.
`isentrope.jax` is the same attention for JAX, and imports no torch.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from isentrope._core.after_import import after_import as _after_import

if TYPE_CHECKING:
    from isentrope._pytorch import *  # noqa: F403


def _import_pytorch() -> ModuleType:
    """Imports the names for PyTorch, makes them attributes of this package, and returns their module."""
    module = importlib.import_module("isentrope._pytorch")
    globals().update((name, vars(module)[name]) for name in module.__all__ if name in vars(module))
    return module


class _Finder:
    """Imports the names for PyTorch, which registers the operators, before any submodule that uses torch."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        without_torch = ("isentrope._pytorch", "isentrope._core", "isentrope._core.libraries", "isentrope.jax")
        if name.startswith("isentrope.") and not name.startswith("isentrope.jax.") and name not in without_torch:
            _import_pytorch()


def __getattr__(name: str) -> Any:
    if name == "jax":
        return importlib.import_module("isentrope.jax")
    if name == "__all__" or not name.startswith("_"):
        module = _import_pytorch()
        if name == "__all__" or name in module.__all__:
            value = globals()[name] = getattr(module, name)
            return value
    raise AttributeError(f"module 'isentrope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(_import_pytorch().__all__ if "isentrope._pytorch" in sys.modules else ())})


def _with_torch() -> None:
    with contextlib.suppress(Exception):  # raised again by the first use, and not by the import of torch
        _import_pytorch()


sys.meta_path.insert(0, _Finder)
_after_import("torch", _with_torch)
