"""The weight that keys receive: from arguments to launches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isentrope._core.call import TENSORS, Call
from isentrope._core.library import LSE
from isentrope.gpu import prepared
from isentrope.gpu.arguments import dropout
from isentrope.gpu.kernels.received import received_kernel
from isentrope.gpu.launch_backward import Pass
from isentrope.gpu.operands import Operands
from isentrope.gpu.prepared import Steps


def received(*arguments: Any) -> Tensor:
    """Implements isentrope::received."""
    *shared, lse, weights = arguments
    call = Call(*shared)
    # Values of one column, which nothing reads, and outputs of 0; dropout does not count.
    call = call._replace(v=call.k[..., :1], dropout_p=0.0)
    column = torch.ones_like(lse) if weights is None else weights.contiguous()
    output = call.q.new_zeros(()).expand(*call.q.shape[:3], 1)
    tensors = *call[:TENSORS], output, lse.contiguous().unsqueeze(0), column.contiguous().unsqueeze(-1)
    (result,) = prepared.run(_received, tensors, call[TENSORS:])
    return result


def _received(steps: Steps, tensors: tuple, numbers: tuple) -> tuple[Tensor, ...]:
    *shared, output, statistics, column = tensors
    call = Operands((*shared, *numbers), steps=steps)
    call.check()
    (result,) = steps.allocate(torch.empty((call.batch, call.heads, call.keys), dtype=torch.float32, device=call.q.device))
    if min(*call.rows, call.keys) == 0:
        steps.do(Tensor.zero_, result)
        return (result,)
    own = Pass(call, LSE, output, statistics, column, None)
    spans = own.key_spans()
    constants = {"SHAPE": own.by_key, "GIVEN": own.given, **own.key_options}
    steps.launch(received_kernel, (spans.shape[1] * call.batch * call.heads, 1, 1), (
        call.q, call.k, column, own.terms, result, spans, own.mask, own.bias,
        *call.q.stride(), *call.k.stride(), *column.stride(), *own.masks,
        call.heads, call.kv_heads, call.queries, call.keys, call.dim, own.rows.batches, own.others[0], *dropout(call),
    ), constants)  # fmt: skip
    return (result,)
