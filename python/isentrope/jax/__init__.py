"""Attention for JAX: `attention`, with derivatives of both modes, and the `Statistics` of every row. Needs no torch."""

from __future__ import annotations

try:
    import jax.extend as _jax  # noqa: F401
except ImportError as _error:
    raise ModuleNotFoundError("isentrope.jax needs JAX 0.7 or later: pip install jax", name="jax") from _error

import isentrope.jax.derivatives  # noqa: F401
from isentrope.jax.functions import attention
from isentrope.jax.library import Statistics

__all__ = ["Statistics", "attention"]
