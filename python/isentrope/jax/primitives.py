"""The primitives: shapes of their results, their compilation, and vmap, which folds its axis into the batch.

With x for the inputs, f for attention with its statistics, t and s for tangents, g for gradients of results:

    forward         f(x)
    tangent         f'(x) t                  linear in t; its transpose is backward
    backward        f'(x)^T g                linear in g; its transpose is tangent
    second_order    gradient of g.f'(x) t    linear in t and g, and its own transpose in t
    curvature       f''(x)(s, t)             linear in s and t; its transpose is second_order; never computed

All but forward also read results of it, output and statistics. These count as constants, because x determines them.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Sequence
from typing import Any

import jax
from jax import numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from isentrope.jax.library import NEEDS, STATISTICS
from isentrope.jax.sharding import by_mapped_axis
from isentrope.jax.spec import Spec, leading, result_avals, without_prefix

_ONLY_CPU = "[attention] isentrope.jax computes {} on CPUs; got a call for {}: move it with jax.device_put or jax.default_device"


def bind(primitive: Primitive, arrays: dict[str, Any], results: Collection[str], spec: Spec) -> dict[str, Any]:
    """Applies a primitive to the named arrays, and returns the named results."""
    spec = spec._replace(names=tuple(arrays), results=tuple(results))
    return dict(zip(results, primitive.bind(*arrays.values(), spec=spec)))


def _varying(aval: Any) -> frozenset:
    return aval.mat.varying if hasattr(aval, "mat") else getattr(aval, "vma", frozenset())  # before JAX 0.10


def varying_alike(arrays: dict[str, Any]) -> dict[str, Any]:
    """Returns the arrays, within `jax.shard_map` all varying over the same mesh axes."""
    varying = {name: _varying(jax.typeof(x)) for name, x in arrays.items()}
    axes = frozenset().union(*varying.values())
    if not axes:
        return arrays
    cast = functools.partial(jax.lax.pcast, to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary
    return {name: cast(x, tuple(axes - varying[name])) for name, x in arrays.items()}


@functools.partial(jax.jit, static_argnames=("primitive", "spec"))
def _compiled(*operands: Any, primitive: Primitive, spec: Spec) -> Any:
    return primitive.bind(*operands, spec=spec)


def _primitive(name: str) -> Primitive:
    primitive = Primitive(f"isentrope_{name}")
    primitive.multiple_results = True
    primitive.def_impl(functools.partial(_compiled, primitive=primitive))
    primitive.def_abstract_eval(lambda *avals, spec: result_avals(spec, avals))
    batching.primitive_batchers[primitive] = functools.partial(_fold, primitive)
    mlir.register_lowering(primitive, functools.partial(_refuse_platform, name))
    return primitive


def _fold(primitive: Primitive, operands: Sequence[Any], axes: Sequence[int | None], *, spec: Spec) -> Any:
    results = by_mapped_axis(functools.partial(_folded, primitive, axes, spec), operands, axes)
    return results, [0] * len(results)


def _folded(primitive: Primitive, axes: Sequence[int | None], spec: Spec, *operands: Any) -> list[Any]:
    """Batches by more batches: operands that are broadcast in their batch stay so."""
    operands = tuple(varying_alike(spec.named(operands)).values())
    size = next(x.shape[axis] for x, axis in zip(operands, axes) if axis is not None)
    has_sinks = any(without_prefix(name) == "sinks" for name in (*spec.names, *spec.results))
    folded = spec._replace(batch=spec.batch * size, parts=spec.parts * size if has_sinks else 1)
    moved = []
    for name, x, axis in zip(spec.names, operands, axes):
        if axis is None and x.shape[0] == 1:
            moved.append(x)
            continue
        x = jnp.moveaxis(x, axis, 0) if axis is not None else x[None]
        whole = jnp.broadcast_to(x, (size, leading(name, spec), *x.shape[2:]))
        moved.append(whole.reshape(leading(name, folded), *x.shape[2:]))
    results = primitive.bind(*moved, spec=folded)
    return [x.reshape(size, leading(name, spec), *x.shape[1:]) for name, x in zip(spec.results, results)]


def _refuse_platform(name: str, context: Any, *operands: Any, spec: Spec) -> Any:
    raise NotImplementedError(_ONLY_CPU.format(f"the {name} pass", " or ".join(context.module_context.platforms)))


def _lower_to(name: str, primitive: Primitive) -> None:
    def lower(context: Any, *operands: Any, spec: Spec) -> Any:
        return jax.ffi.ffi_lowering(f"isentrope_{name}")(context, *operands, call=spec.text())

    mlir.register_lowering(primitive, lower, platform="cpu")


def _lower_on_device(name: str, primitive: Primitive) -> None:
    """On NVIDIA devices statistics lie [batch, heads, queries] in memory; XLA numbers the axes from the innermost."""

    def layouts(names: Sequence[str], avals: Sequence[Any]) -> list[Sequence[int]]:
        is_statistic = [without_prefix(each) in STATISTICS for each in names]
        return [(1, 2, 0) if inner else range(aval.ndim)[::-1] for inner, aval in zip(is_statistic, avals)]

    def lower(context: Any, *operands: Any, spec: Spec) -> Any:
        kernels = os.environ.get("ISENTROPE_CUDA_KERNELS")
        if kernels is None:
            message = "[attention] ISENTROPE_CUDA_KERNELS must name a folder of compiled kernels for calls on a device; got none"
            raise NotImplementedError(f"{message}: on CPUs, jax.device_put or jax.default_device need none")
        rule = jax.ffi.ffi_lowering(
            f"isentrope_{name}_on_device",
            operand_layouts=layouts(spec.names, context.avals_in),
            result_layouts=layouts(spec.results, context.avals_out),
        )
        return rule(context, *operands, call=spec.text(kernels=kernels))

    mlir.register_lowering(primitive, lower, platform="cuda")


def _second_order(*operands: Any, spec: Spec) -> Any:
    """Runs the tangent pass, whose results the second-order pass reads."""
    arrays = spec.named(operands)
    needs = [need for name in spec.names if name.startswith("d_") for need in NEEDS.get(name[2:], ()) if need in NEEDS]
    without_gradients = {name: x for name, x in arrays.items() if not name.startswith("d_")}
    moved = bind(tangent, without_gradients, dict.fromkeys(f"t_{name}" for name in ("output", "lse", *needs)), spec)
    return list(bind(_second_order_pass, arrays | moved, spec.results, spec).values())


def _refuse_curvature(context: Any, *operands: Any, spec: Spec) -> Any:
    raise NotImplementedError(
        "[attention] a second derivative must have reverse mode in it: jax.jvp of jax.grad, as in jax.hessian, or jax.grad of "
        "jax.jvp; got forward mode twice"
    )


forward = _primitive("forward")
tangent = _primitive("tangent")
backward = _primitive("backward")
second_order = _primitive("second_order")
curvature = _primitive("curvature")
_second_order_pass = _primitive("second_order_pass")

_lower_to("forward", forward)
_lower_to("tangent", tangent)
_lower_to("backward", backward)
_lower_to("second_order", _second_order_pass)
_lower_on_device("forward", forward)
_lower_on_device("backward", backward)
mlir.register_lowering(second_order, mlir.lower_fun(_second_order, multiple_results=True))
mlir.register_lowering(curvature, _refuse_curvature)
