"""Derivatives of the primitives, by the table in primitives.py."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
from jax import numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad

from isentrope.jax.library import NEEDS
from isentrope.jax.primitives import backward, bind, curvature, forward, second_order, tangent
from isentrope.jax.spec import INPUTS, Spec, without_prefix

# For operands of a prefix in which a primitive is linear: its transpose, the prefix of the cotangents there, and that of the
# transpose's results.
_TRANSPOSES = {
    (tangent, "t"): (backward, "d", "d"),
    (backward, "d"): (tangent, "t", "t"),
    (second_order, "t"): (second_order, "t", "d"),
    (second_order, "d"): (curvature, "s", "t"),
    (curvature, "s"): (second_order, "d", "d"),
    (curvature, "t"): (second_order, "d", "d"),
}
# The derivative of a primitive along tangents of the inputs, and their prefix there.
_ALONG_INPUTS = {tangent: (curvature, "s"), backward: (second_order, "t")}


def _nonzero(spec: Spec, values: Sequence[Any], names: Sequence[str], prefix: str) -> dict[str, Any]:
    """Returns the tangents of these operands that are not zero, named by the prefix and the operand without its own."""
    found = spec.named(values)
    return {f"{prefix}_{without_prefix(name)}": found[name] for name in names if type(found[name]) is not ad.Zero}


def _zero(x: Any) -> ad.Zero:
    return ad.Zero(jax.typeof(x).to_tangent_aval())


def _without(operands: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {name: x for name, x in operands.items() if not name.startswith(f"{prefix}_")}


def _inputs(spec: Spec) -> list[str]:
    return [name for name in spec.names if name in INPUTS]


def _forward_jvp(operands: Sequence[Any], tangents: Sequence[Any], *, spec: Spec) -> Any:
    differentiable = [name for name in spec.results if name in NEEDS]
    saved = dict.fromkeys(("output", "lse", *(need for name in differentiable for need in NEEDS[name])))
    arrays = spec.named(operands)
    results = bind(forward, arrays, dict.fromkeys((*spec.results, *saved)), spec)
    arrays |= {name: results[name] for name in saved} | _nonzero(spec, tangents, _inputs(spec), "t")
    out = bind(tangent, arrays, [f"t_{name}" for name in ("output", *differentiable)], spec)
    primals = [results[name] for name in spec.results]
    return primals, [out.get(f"t_{name}", _zero(x)) for name, x in zip(spec.results, primals)]


def _jvp(primitive: Primitive, operands: Sequence[Any], tangents: Sequence[Any], *, spec: Spec) -> Any:
    primals = primitive.bind(*operands, spec=spec)
    arrays = spec.named(operands)
    totals: list[Any] = [_zero(x) for x in primals]

    def add(other: Primitive, operands: dict[str, Any]) -> None:
        out = bind(other, operands, spec.results, spec)
        totals[:] = map(ad.add_tangents, totals, out.values())

    for prefix in [prefix for each, prefix in _TRANSPOSES if each is primitive]:
        linear = [name for name in spec.names if name.startswith(f"{prefix}_")]
        if changes := _nonzero(spec, tangents, linear, prefix):
            add(primitive, _without(arrays, prefix) | changes)
    if any(type(spec.named(tangents)[name]) is not ad.Zero for name in _inputs(spec)):
        if primitive not in _ALONG_INPUTS:
            raise NotImplementedError("[attention] derivatives must be of first or second order; got one of third")
        other, prefix = _ALONG_INPUTS[primitive]
        add(other, arrays | _nonzero(spec, tangents, _inputs(spec), prefix))
    return primals, totals


def _transpose(primitive: Primitive, cotangents: Sequence[Any], *operands: Any, spec: Spec) -> Any:
    linear = [name for name, x in zip(spec.names, operands) if ad.is_undefined_primal(x)]
    prefix = linear[0][0]
    other, prefix_there, image = _TRANSPOSES[primitive, prefix]
    arrays = _without(spec.named(operands), prefix)
    if primitive is curvature:  # symmetric in its two tangents
        arrays = {name.replace("s_", "t_", 1) if name.startswith("s_") else name: x for name, x in arrays.items()}
    given = [(name, x) for name, x in zip(spec.results, cotangents) if type(x) is not ad.Zero]
    arrays |= {f"{prefix_there}_{without_prefix(name)}": x for name, x in given}
    always = ("d_q", "d_k", "d_v") if image == "d" else ("t_output",)
    wanted = [f"{image}_{without_prefix(name)}" for name in linear]
    out = dict(zip(linear, map(bind(other, arrays, dict.fromkeys((*always, *wanted)), spec).get, wanted)))
    return [_sum_to(out[name], x.aval.shape) if name in out else None for name, x in zip(spec.names, operands)]


def _sum_to(gradient: Any, shape: Sequence[int]) -> Any:
    """Sums over the axes in which an operand was broadcast."""
    axes = tuple(axis for axis, size in enumerate(shape) if size != gradient.shape[axis])
    return jnp.sum(gradient, axes, keepdims=True) if axes else gradient


ad.primitive_jvps[forward] = _forward_jvp
for _each in (tangent, backward, second_order, curvature):
    ad.primitive_jvps[_each] = functools.partial(_jvp, _each)
    ad.primitive_transposes[_each] = functools.partial(_transpose, _each)
