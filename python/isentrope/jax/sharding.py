"""Calls on a mesh with explicit axes, which `jax.make_mesh` makes in newer JAX: each device computes its part of the results.

On such a mesh the type of an array says how it is sharded, and its gradient must be sharded as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

# The axes of batches and heads, which are 0 and 2 for every other array.
_AXES = {"bias": (0, 1), "attn_mask": (0, 1), "sinks": (None, 1), "key_end": (0, None)}


def by_batches_and_heads(function: Callable[..., Any], arrays: dict[str, Any], heads_are_alike: bool) -> dict[str, Any]:
    """Applies a function of attention's arrays to the batches and heads of each device. Its results are sharded as q is.

    heads_are_alike: whether the function may be applied to some heads alone.
    """
    shardings = [jax.typeof(x).sharding for x in arrays.values()]
    mesh = next((sharding.mesh for sharding in shardings if any(sharding.spec)), None)
    if mesh is None:
        return function(arrays)
    batch, queries, heads, _ = shardings[0].spec
    as_q = NamedSharding(mesh, PartitionSpec(batch, queries, heads))
    key_heads = arrays["k"].shape[2]
    # The queries of a device would read other heads of its keys where the devices do not divide these.
    if not heads_are_alike or (key_heads > 1 and key_heads % math.prod(mesh.shape[name] for name in _names(heads))):
        heads = None

    def partition(name: str, x: Any) -> PartitionSpec:
        entries = dict(zip(_AXES.get(name, (0, 2)), (batch, heads)))
        return PartitionSpec(*(entries.get(axis) if size > 1 else None for axis, size in enumerate(x.shape)))

    specs = {name: partition(name, x) for name, x in arrays.items()}
    results = _on_devices(function, mesh, arrays, specs, PartitionSpec(batch, None, heads))
    return {name: jax.sharding.reshard(x, as_q) for name, x in results.items()}


def by_mapped_axis(function: Callable[..., Any], operands: Sequence[Any], axes: Sequence[int | None]) -> Any:
    """Applies a function of operands with a mapped axis, which becomes axis 0 of its results, to each device's part of that axis."""
    for x, axis in zip(operands, axes):
        sharding = jax.typeof(x).sharding
        if axis is not None and sharding.spec[axis]:
            entry = sharding.spec[axis]
            specs = tuple(PartitionSpec() if axis is None else PartitionSpec(*(None,) * axis, entry) for axis in axes)
            return _on_devices(lambda x: function(*x), sharding.mesh, tuple(operands), specs, PartitionSpec(entry))
    return function(*operands)


def _names(entry: Any) -> tuple[str, ...]:
    """Returns the mesh axes in an entry of a PartitionSpec."""
    return entry if isinstance(entry, tuple) else () if entry is None else (entry,)


def _on_devices(function: Callable[..., Any], mesh: Any, operands: Any, specs: Any, out_specs: PartitionSpec) -> Any:
    explicit = {name for name, kind in zip(mesh.axis_names, mesh.axis_types) if kind == AxisType.Explicit}
    moved = jax.tree.map(lambda x, spec: jax.sharding.reshard(x, NamedSharding(mesh, spec)), operands, specs)
    return jax.shard_map(function, mesh=mesh, in_specs=(specs,), out_specs=out_specs, axis_names=explicit)(moved)
