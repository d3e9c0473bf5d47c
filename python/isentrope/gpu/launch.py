"""The operators: checks their arguments and launches the kernels. Nothing here waits for the device or reads its tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isentrope._core.call import TENSORS
from isentrope.gpu import prepared
from isentrope.gpu.launch_backward import backward
from isentrope.gpu.launch_forward import forward
from isentrope.gpu.launch_rows import Rows
from isentrope.gpu.operands import Operands
from isentrope.gpu.prepared import Steps


def attention(*arguments: Any) -> tuple[Tensor, ...]:
    """Implements isentrope::attention."""
    return prepared.run(_attention, arguments[:TENSORS], arguments[TENSORS:])


def _attention(steps: Steps, tensors: tuple, numbers: tuple) -> tuple[Tensor, ...]:
    *numbers, wanted = numbers
    call = Operands((*tensors, *numbers), steps=steps)
    call.check()
    return forward(call, wanted)


def attention_backward(*arguments: Any) -> tuple[Tensor, ...]:
    """Implements isentrope::attention_backward."""
    *shared, wanted, output, statistics, d_output, d_statistics, wants_bias, wants_lambda, wants_sinks, in_float32 = arguments
    results = output, statistics, d_output, d_statistics
    wants = wanted, wants_bias, wants_lambda, wants_sinks, in_float32
    return prepared.run(_attention_backward, (*shared[:TENSORS], *results), (*shared[TENSORS:], *wants))


def _attention_backward(steps: Steps, tensors: tuple, numbers: tuple) -> tuple[Tensor, ...]:
    *numbers, wanted, wants_bias, wants_lambda, wants_sinks, in_float32 = numbers
    call = Operands((*tensors[:TENSORS], *numbers), steps=steps)
    call.check()
    return backward(call, wanted, *tensors[TENSORS:], wants_bias, wants_lambda, wants_sinks, in_float32)


def decode(*arguments: Any) -> tuple[Tensor, ...]:
    """Implements isentrope::decode."""
    *shared, table, used, wanted = arguments
    for name, tensor, rank in (("block_table", table, 2), ("seqused_k", used, 1)):
        if tensor.dim() != rank:
            raise ValueError(f"[decode] {name} must have {rank} dimensions; got {tensor.dim()}")
    if table.dtype != torch.int32:
        # Larger page numbers are invalid too.
        table = table.clamp(-1, torch.iinfo(torch.int32).max).int()
    return prepared.run(_decode, (*shared[:TENSORS], table.contiguous(), used.contiguous()), (*shared[TENSORS:], wanted))


def _decode(steps: Steps, tensors: tuple, numbers: tuple) -> tuple[Tensor, ...]:
    (*shared, table, used), (*numbers, wanted) = tensors, numbers
    call = Operands((*shared, *numbers), table, steps)
    if len(used) != call.batch or len(table) != call.batch:
        raise ValueError(
            f"[decode] block_table and seqused_k must have a row for each of the {call.batch} sequences; got "
            f"{len(table)} and {len(used)}"
        )
    call.check()
    return forward(call, wanted, used)


def row_lengths(*arguments: Any) -> Tensor:
    """Implements isentrope::row_lengths."""
    (lengths,) = prepared.run(_row_lengths, arguments[:TENSORS], arguments[TENSORS:])
    return lengths


def _row_lengths(steps: Steps, tensors: tuple, numbers: tuple) -> tuple[Tensor, ...]:
    call = Operands((*tensors, *numbers), steps=steps)
    call.check()
    (lengths,) = steps.allocate(torch.empty(call.rows, dtype=torch.int64, device=call.q.device))
    if lengths.numel() > 0:
        Rows(call, 64, lengths=lengths)
    return (lengths,)
