"""Compile-time parameters and launch options of the tile kernels, and tensor descriptors of keys and values."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from isentrope.gpu import plan
from isentrope.gpu.arguments import FUSED
from isentrope.gpu.kernels.tile import Shape
from isentrope.gpu.operands import Operands


def shape_of(call: Operands, kernel: str, chip: plan.Chip, results: str) -> tuple[Shape, dict[str, Any]]:
    """Returns a tile kernel's compile-time parameters and launch options.

    results: "lse", "moments" or "all": statistics that are requested, or have upstream gradients (`tile_table.Key`)."""
    statistics = results != "lse"
    dim, columns = plan.padded(call.dim), plan.padded(call.value_dim)
    masked = call.decisions.masked
    padded = (dim, columns) != (call.dim, call.value_dim)
    widest = max(dim, columns)
    # Padding counts as a mask, because at 96 the key gradient spilled 56 bytes on sm_90 with the tile of 128, and
    # forward with all statistics 8. So does dropout with gradients of statistics: 216 bytes in the key gradient at 128,
    # 144 in the query gradient at 64.
    crowded = masked or (padded and (kernel == "key gradient" or (statistics and chip.kind == "sm90")))
    crowded |= kernel in ("query gradient", "key gradient") and statistics and call.dropout_p > 0
    other = padded or call.soft_cap > 0 or call.dropout_p > 0 or call.sinks is not None
    if crowded and results == "moments":
        results = "all"
    tiles = plan.tiles(kernel, chip, call.q.dtype, widest, crowded, "other" if other else results)
    described = tiles.descriptors and kernel != "key gradient" and not masked and _can_have_descriptors(call, tiles, chip)
    shape = Shape(
        tiles.rows, tiles.keys, tiles.stages, dim, columns, dim == call.dim, columns == call.value_dim,
        call.soft_cap > 0, call.attn_mask is not None, call.bias is not None, masked, plan.precision(kernel, chip, widest),
        call.dropout_p > 0, call.dropout_p > 0 and call.key_offset % 4 == 0,
        call.decisions.dilation, plan.chained(kernel, chip, call.q.dtype, masked, tiles.warps) if statistics else 0,
        APART=tiles.apart, ONE_LOOP=kernel == "few rows" and not masked and not described,
        OCCUPANCY=plan.occupancy_of(tiles, chip, call.q.dtype, dim, columns), DESCRIPTORS=described,
    )  # fmt: skip
    registers = {"maxnreg": tiles.registers} if tiles.registers else {}
    return shape, {"num_warps": tiles.warps, **registers, **FUSED}


def _can_have_descriptors(call: Operands, tiles: plan.Tiles, chip: plan.Chip) -> bool:
    """Whether tensor descriptors can load whole tiles of keys and values: the chip has bulk copies, and dimensions, pages and
    strides allow it."""
    if chip.kind not in ("sm90", "sm100", "interpreter"):
        return False
    padded = any(plan.padded(columns) != columns for columns in (call.dim, call.value_dim))
    fits = not padded and tiles.keys <= 256 and (call.table is None or call.k.shape[2] % tiles.keys == 0)
    return fits and all(map(_has_descriptor, (call.k, call.v)))


def _has_descriptor(x: Tensor) -> bool:
    """Whether bulk copies take a tensor: its rows have no gaps, other strides and the address are multiples of 16 bytes."""
    strides = [stride * x.element_size() for stride in x.stride()[:3]]
    return x.stride(3) == 1 and x.data_ptr() % 16 == 0 and all(stride > 0 and stride % 16 == 0 for stride in strides)


def descriptors(call: Operands, shape: Shape) -> dict[str, TensorDescriptor | None]:
    """Tensor descriptors of keys and values, by their names in the kernels; None without them."""
    if not shape.DESCRIPTORS:
        return {"k_tiles": None, "v_tiles": None}
    return {
        name: TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, shape.KEYS, x.shape[3]])
        for name, x in (("k_tiles", call.k), ("v_tiles", call.v))
    }
