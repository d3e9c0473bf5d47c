"""Attention over DTensors whose rows are sharded over a dimension of their mesh."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

from torch import Tensor
from torch.distributed import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from isentrope._core.library import AXES, CHECKED
from isentrope.rules import rule_text
from isentrope.statistics import converted

ROWS = Shard(2)


def rows_dimension(q: DTensor) -> int:
    """Returns the dimension of the mesh that shards the rows. Raises ValueError unless there is one."""
    dimensions = [index for index, placement in enumerate(q.placements) if placement == ROWS]
    if len(dimensions) != 1:
        raise ValueError(
            "[isentrope.distributed] q must be sharded along its rows, Shard(2), over one dimension of its mesh; "
            f"got {list(q.placements)}"
        )
    return dimensions[0]


def on_local_tensors(
    function: Callable, q: DTensor, k: Any, v: Any, options: dict[str, Any], way: dict[str, Any]
) -> Any:
    """Calls `function` on the local tensors, and returns its results as DTensors placed like q.

    options: those of the call; each tensor is a DTensor with the matching placement, or the same on every rank. way:
    further arguments of the function.
    """
    mesh, placements, at = q.device_mesh, q.placements, rows_dimension(q)
    for name, x in (("k", k), ("v", v)):
        if not isinstance(x, DTensor) or x.placements != placements or x.device_mesh != mesh:
            raise ValueError(
                f"[isentrope.distributed] {name} must be a DTensor placed as q is, {list(placements)}; "
                f"got {list(x.placements) if isinstance(x, DTensor) else type(x).__name__}"
            )
    if any(placement not in (ROWS, Shard(0), Shard(1), Replicate()) for placement in placements):
        raise ValueError(
            f"[isentrope.distributed] q must be sharded by batch, heads and rows alone; got {list(placements)}"
        )
    shards = prod([mesh.size(dimension) for dimension, placement in enumerate(placements) if placement == Shard(1)])
    if q.shape[1] != k.shape[1] and k.shape[1] % shards:
        raise ValueError(
            f"[isentrope.distributed] k must have the {q.shape[1]} heads of q, or a multiple of the {shards} shards of its heads; "
            f"got {k.shape[1]}"
        )
    local = [x.to_local() for x in (q, k, v)]
    options = {name: _local(name, x, mesh, placements) for name, x in options.items()}
    options["rule"] = _local_rule(rule_text(options.get("rule", "standard"), None), q)
    result = function(*local, group=mesh[mesh.mesh_dim_names[at]] if mesh.mesh_dim_names else mesh.get_group(at),
                      sequence_length=q.shape[2], **options, **way)  # fmt: skip

    def placed(x: Tensor, columns: tuple[int, ...]) -> DTensor:
        shape = (*q.shape[:3], *columns)
        strides = tuple(accumulate(reversed(shape[1:]), mul, initial=1))[::-1]
        return DTensor.from_local(x.contiguous(), mesh, placements, run_check=False, shape=shape, stride=strides)  # type: ignore[arg-type]

    return converted(result, lambda x: placed(x, (v.shape[3],)), lambda x: placed(x, ()))


def _local_rule(rule: str, q: DTensor) -> str:
    """Returns the rule for this rank's heads. The operator refuses one for another number of heads."""
    here = range(q.shape[1])
    if Shard(1) not in q.placements or CHECKED.rule_heads(rule) != len(here):
        return rule
    for dimension, placement in enumerate(q.placements):
        if placement == Shard(1):
            per_rank = -(-len(here) // q.device_mesh.size(dimension))
            here = here[q.device_mesh.get_local_rank(dimension) * per_rank :][:per_rank]
    return CHECKED.rule_of_heads(rule, here.start, len(here)) if here else rule


def _local(name: str, x: Any, mesh: DeviceMesh, placements: tuple) -> Any:
    if not isinstance(x, Tensor):
        return x
    # One-dimensional tensors are sharded like batch or heads; documents are replicated.
    split = {"batch": Shard(0), "heads": Shard(1)}.get(AXES["cu_seqlens_q" if name == "documents" else name][0])
    wanted = tuple(Shard(0) if placement == split else Replicate() for placement in placements)
    if isinstance(x, DTensor):
        # Ranks that have other rows or sequences of q have a part of the gradient of what they share.
        parts = [Partial() if want == Replicate() != placement else want for want, placement in zip(wanted, placements)]
        return x.redistribute(mesh, wanted).to_local(grad_placements=parts)
    # A plain tensor is the same on every rank, which takes its own shard.
    return DTensor.from_local(x, mesh, [Replicate()] * mesh.ndim, run_check=False).redistribute(mesh, wanted).to_local()
