"""The forward pass: from checked operands to launches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isentrope._core.fakes import results_of
from isentrope.gpu import plan
from isentrope.gpu.arguments import FUSED, beside_lse, blocks_of, slice_of, wanted_of, with_repair
from isentrope.gpu.kernels.forward import forward_kernel
from isentrope.gpu.kernels.merge import merge_kernel
from isentrope.gpu.kernels.shares import SHARED
from isentrope.gpu.kernels.sums import PAIRS
from isentrope.gpu.launch_rows import resolve_rows, tile_arguments
from isentrope.gpu.operands import Operands
from isentrope.gpu.shapes import descriptors, shape_of


def forward(call: Operands, wanted: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns output, statistics and support of checked operands."""
    output, statistics, support = call.steps.allocate(*results_of(call.q, call.value_dim, wanted))
    if output.numel() == 0:
        return output, statistics, support
    chip = plan.chip_of(call.q.device)
    decisions = call.decisions
    results: dict[str, Any] = {"WANTED": wanted_of(wanted), "SINK": call.sinks is not None}
    kernel = "few rows" if decisions.packed else "forward"
    shape, options = shape_of(call, kernel, chip, "all" if beside_lse(results["WANTED"]) else "lse")
    measured = results["WANTED"].DISTANCE >= 0 and shape.CHAINED == PAIRS.value and not shape.ONE_LOOP
    shape = shape._replace(OWN_LAST=measured and decisions.own_is_last)
    blocks = call.batch * decisions.lanes * blocks_of(decisions.length, shape.ROWS)
    if call.starts is not None:  # each sequence has a block that is not full
        blocks = decisions.lanes * (decisions.length // shape.ROWS + call.sequences)
    splits = plan.shares_of(chip, blocks, call.keys, shape.KEYS, shape.OCCUPANCY)
    place = slice_of("lambda_", wanted)
    rows = resolve_rows(call, shape.ROWS, to_lambda=statistics[place] if place >= 0 else None)
    states = sums = rows.scales
    checked = decisions.moments_checked if results["WANTED"].MOMENTS > 0 else decisions.rows_differ
    wrong = call.empty(splits * blocks, torch.int32) if checked else None
    if splits > 1:
        states, sums = (call.empty((splits, blocks, shape.ROWS, width), torch.float32) for width in (SHARED.value, shape.COLUMNS))
    page = 0 if call.table is None else call.k.shape[2]
    constants = {"SHAPE": shape, **results, "PAGE": page, "PACKED": decisions.packed, "SPLIT": splits > 1, **options}
    named = {
        **tile_arguments(call, rows, "o", output), "output": output, "statistics": statistics, "supports": support,
        "states": states, "sums": sums, "splits": splits, "wrong": wrong, **descriptors(call, shape),
    }  # fmt: skip
    call.steps.launch(forward_kernel, (blocks, 1, splits), named, *with_repair(wrong, constants))
    if splits > 1:
        count, merged = merging(shape.ROWS, shape.COLUMNS)
        call.steps.launch(merge_kernel, (blocks, blocks_of(min(shape.ROWS, decisions.length), count), 1), named, {
            **results, "PACKED": decisions.packed, "ROWS": shape.ROWS, "COLUMNS": shape.COLUMNS, "EVEN_COLUMNS": shape.EVEN_COLUMNS,
            "COUNT": count, "MERGED": merged, "num_warps": 4, **FUSED,
        })  # fmt: skip
    return output, statistics, support


def merging(rows: int, columns: int) -> tuple[int, int]:
    """Returns the rows of a program of merge_kernel, one for decode steps, and the shares that it merges at a time.

    A thread of 128 loads 64 floats at a time, which leaves it registers for their addresses. There are at most 128 shares."""
    count = rows // 16
    return count, min(128, 8192 // (count * columns))
