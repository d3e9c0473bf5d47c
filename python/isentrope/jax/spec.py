"""Spec: what is static in a call, and what each of its arrays is called.

Prefixes say what an array belongs to: "t_q" is the tangent of q, "s_q" a second one, "d_q" the gradient with respect to q.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jax import numpy
from jax.core import ShapedArray
from jax.sharding import NamedSharding, PartitionSpec

# Inputs with derivatives.
INPUTS = ("q", "k", "v", "bias", "sinks")


class Spec(NamedTuple):
    """The parameter of all primitives. A batch is what the batches of all vmaps are folded into."""

    names: tuple[str, ...]  # of the operands
    results: tuple[str, ...]
    options: tuple[tuple[str, Any], ...]  # options of the library that are no arrays, by name
    batch: int
    parts: int  # of the batch, each with a row of sinks of its own

    def text(self, **more: Any) -> str:
        """Returns the JSON that bindings/jax/call.h reads."""
        whole = {"names": self.names + self.results, "options": dict(self.options), "batch": self.batch, "parts": self.parts}
        return json.dumps(whole | more)

    def named(self, operands: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.names, operands))


def without_prefix(name: str) -> str:
    return name[2:] if name[:2] in ("t_", "s_", "d_") else name


def leading(name: str, spec: Spec) -> int:
    """Returns the first extent of an operand that is not broadcast."""
    return spec.parts if without_prefix(name) == "sinks" else spec.batch


def result_avals(spec: Spec, avals: Sequence[ShapedArray]) -> list[ShapedArray]:
    """Returns shapes and types of the results, which are never broadcast."""
    given = spec.named(avals)
    q, k, v = given["q"], given["k"], given["v"]
    _, queries, heads, dim = q.shape
    rows = (queries, heads)
    shapes: Mapping[str, tuple[int, ...]] = {
        "q": (*rows, dim), "k": k.shape[1:], "v": v.shape[1:], "output": (*rows, v.shape[3]),
        "bias": (heads, queries, k.shape[1]), "sinks": (heads,),
    }  # fmt: skip
    types = {"output": q.dtype, "support": "int32"}
    statistic = "float64" if q.dtype == "float64" else "float32"
    results = []
    for name in spec.results:
        base = without_prefix(name)
        dtype = given[base].dtype if base in ("q", "k", "v") else types.get(base, statistic)
        shape = (leading(name, spec), *shapes.get(base, rows))
        sharding = NamedSharding(q.sharding.mesh, PartitionSpec(*(None,) * len(shape)))
        # Within shard_map a result varies as q does, over the mesh axes of all operands.
        results.append(q.update(shape=shape, dtype=numpy.dtype(dtype), weak_type=False, sharding=sharding))
    return results
