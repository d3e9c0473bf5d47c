"""Options of `attention`, checked and as the library names them."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import jax
from jax import numpy as jnp

from isentrope.jax.library import STATISTICS, Statistics

_CAUSAL = {False: 0, "top_left": 1, True: 2, "bottom_right": 2}
_OF_JAX = {"is_causal": "causal", "local_window_size": "window_size"}


def must(name: str, required: str, got: Any, error: type[Exception] = ValueError) -> Exception:
    return error(f"[attention] {name} must {required}; got {got!r}"[:300])


def rule_text(rule: Any, scale: Any) -> str:
    """Returns the rule as text, with `scale`, if given, instead of the rule's 1/sqrt(d)."""
    text = rule if isinstance(rule, str) else getattr(rule, "text", None)
    if not isinstance(text, str):
        raise must("rule", "be a str or a ScaleRule", rule, TypeError)
    return text if scale is None else f"constant(scale={number('scale', scale)!r}) * {text}"


def number(name: str, value: Any) -> float:
    """Returns a number of the caller, which XLA compiles into the program."""
    if isinstance(value, jax.core.Tracer):
        raise must(name, "be a number and no traced array (multiply q by it)", value, TypeError)
    if isinstance(value, (bool, str, bytes)) or str(getattr(value, "dtype", "")) == "bool":
        raise must(name, "be a number", value, TypeError)
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        raise must(name, "be a number", value, TypeError) from None
    if not math.isfinite(found):
        raise must(name, "be finite", value)
    return found


def mask_options(
    queries: int, keys: int, causal: bool | str, window_size: Any, is_causal: bool, local_window_size: Any
) -> dict[str, int]:
    """Returns the options of the mask, from the names of this package or those of JAX."""
    both = {"causal": causal is not False and is_causal, "window_size": window_size is not None and local_window_size is not None}
    for ours, given in both.items():
        if given:
            name = next(jaxs for jaxs, other in _OF_JAX.items() if other == ours)
            raise must(name, f"be absent if {ours} is given", "both")
    if not isinstance(causal, (bool, str)) or causal not in _CAUSAL:
        raise must("causal", 'be False, True, "top_left" or "bottom_right"', causal)
    options = {"causal": 1 if is_causal else _CAUSAL[causal]}
    if local_window_size is not None:
        window_size = (local_window_size,) * 2 if isinstance(local_window_size, int) else local_window_size
        if causal not in (False, "top_left") and queries != keys:
            raise must("local_window_size", 'have is_causal or causal="top_left"', causal)
        if not options["causal"] and queries != keys:
            options["sequence_keys"] = keys  # query i is then at position i
    if window_size is not None:
        name, least = ("window_size", -1) if local_window_size is None else ("local_window_size", 0)
        try:
            left, right = map(operator.index, window_size)
        except (TypeError, ValueError):
            raise must(name, "be two integers, (left, right)", window_size) from None
        if min(left, right) < least:
            raise must(name, f"be at least {least}", window_size)
        options |= {"window_left": left, "window_right": right}
    return options


def statistic_names(return_stats: bool | str | Sequence[str], return_residual: bool) -> tuple[str, ...]:
    """Returns the library's names of the requested statistics."""
    if return_residual:
        if return_stats is not False:
            raise must("return_stats", "be absent with return_residual", return_stats)
        return ("lse",)
    if isinstance(return_stats, bool):
        return STATISTICS if return_stats else ()
    names = (return_stats,) if isinstance(return_stats, str) else tuple(return_stats)
    fields = dict(zip(Statistics._fields, STATISTICS))
    for name in names:
        if name not in fields:
            raise must("return_stats", f"be True, False or some of {', '.join(fields)}", name)
    return tuple(fields[name] for name in dict.fromkeys(names))


def of_weights(name: str, array: Any, number: Any) -> jax.Array:
    """Returns a bias or mask with the 4 axes of the weights. Axes that are missing are the first."""
    array = jnp.asarray(array)
    if array.ndim > 4:
        raise must(name, "have at most 4 dimensions, [batch, heads, queries, keys]", array.shape)
    if number is bool and array.dtype != bool:
        raise must(name, "be bool (a bias is added to the logits)", str(array.dtype), TypeError)
    if number is not bool and not jnp.issubdtype(array.dtype, jnp.floating):
        raise must(name, "be floating point (a mask is bool)", str(array.dtype), TypeError)
    return array.reshape((1,) * (4 - array.ndim) + array.shape).astype(number)


def lengths(name: str, given: Any, batch: int) -> jax.Array:
    """Returns lengths of sequences, integers [batch]; a number if there is no batch."""
    found = jnp.atleast_1d(jnp.asarray(given))
    if found.shape != (batch,) or not jnp.issubdtype(found.dtype, jnp.integer):
        raise must(name, f"be integers [{batch}]", found, TypeError)
    return found


def visible(mask: Any, query_seq_lengths: Any, batch: int, queries: int) -> jax.Array | None:
    """Returns both as one boolean mask; queries from their length on see no key."""
    seen = None if mask is None else of_weights("mask", mask, bool)
    if query_seq_lengths is None:
        return seen
    inside = (jnp.arange(queries) < lengths("query_seq_lengths", query_seq_lengths, batch)[:, None])[:, None, :, None]
    return inside if seen is None else seen & inside
