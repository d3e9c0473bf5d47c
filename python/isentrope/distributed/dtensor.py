"""DTensors whose rows lie on a dimension of their mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.distributed import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from isentrope.statistics import Statistics

ROWS = Shard(2)


def rows_dimension(q: DTensor) -> int:
    """Which dimension of the mesh the rows lie on. ValueError unless there is one."""
    found = [index for index, placement in enumerate(q.placements) if placement == ROWS]
    if len(found) != 1:
        raise ValueError(
            "[isentrope.distributed] q must be sharded along its rows, Shard(2), over one dimension of its mesh; "
            f"got {list(q.placements)}"
        )
    return found[0]


def on_local_tensors(
    function: Callable, q: DTensor, k: DTensor, v: DTensor, rule: str, others: dict[str, Any], options: dict[str, Any]
) -> Any:
    """`function` on the local tensors, and its results as DTensors that are placed as q is.

    others: tensors by name, [batch] or, for sinks, [heads], each a DTensor placed accordingly or the same everywhere,
        or a number for all sequences.
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
    if "[" in rule and Shard(1) in placements:
        raise ValueError(f"[isentrope.distributed] rule must have one number for all heads that are sharded; got {rule!r}")
    local = [x.to_local() for x in (q, k, v)]
    others = {name: _local(name, x, mesh, placements) for name, x in others.items() if x is not None}
    result = function(*local, group=mesh[mesh.mesh_dim_names[at]] if mesh.mesh_dim_names else mesh.get_group(at),
                      sequence_length=q.shape[2], rule=rule, **others, **options)  # fmt: skip

    def placed(x: Tensor, columns: tuple[int, ...]) -> DTensor:
        shape = (*q.shape[:3], *columns)
        strides = [1]
        for extent in reversed(shape[1:]):
            strides.insert(0, strides[0] * extent)
        return DTensor.from_local(x.contiguous(), mesh, placements, run_check=False, shape=shape, stride=tuple(strides))

    if isinstance(result, Tensor):
        return placed(result, (v.shape[3],))
    output, statistics = result
    return placed(output, (v.shape[3],)), Statistics(*(None if x is None else placed(x, ()) for x in statistics))


def _local(name: str, x: Tensor | int, mesh: DeviceMesh, placements: tuple) -> Tensor | int:
    if not isinstance(x, Tensor):
        return x
    kind = {"sinks": Shard(1), "documents": None}.get(name, Shard(0))
    wanted = tuple(Shard(0) if placement == kind else Replicate() for placement in placements)
    if isinstance(x, DTensor):
        return x.redistribute(mesh, wanted).to_local()
    # A plain tensor is the same on every rank: each takes its part.
    return DTensor.from_local(x, mesh, [Replicate()] * mesh.ndim, run_check=False).redistribute(mesh, wanted).to_local()
