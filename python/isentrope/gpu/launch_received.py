"""Statistics of keys, from arguments to launches: the weight that each receives, and weights of chosen keys."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isentrope._core.call import TENSORS, Call
from isentrope._core.library import LSE
from isentrope.gpu import plan, prepared
from isentrope.gpu.arguments import wanted_of
from isentrope.gpu.kernels.received import received_kernel
from isentrope.gpu.kernels.weights_at import weights_at_kernel
from isentrope.gpu.launch_backward import Pass
from isentrope.gpu.launch_rows import resolve_rows, tile_arguments
from isentrope.gpu.operands import Operands, pages_of
from isentrope.gpu.prepared import Steps
from isentrope.gpu.shapes import shape_of


def _run(plan_of: Any, shared: Any, table: Any, used: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
    pages = (None, None) if table is None else pages_of(table, used)[:2]
    # Values of one column, which nothing reads; dropout does not count.
    call = Call(*shared)
    call = call._replace(v=call.k[..., :1], dropout_p=0.0)
    return prepared.run(plan_of, (*call[:TENSORS], *pages, *tensors), call[TENSORS:])


def _refuse_packed(starts: Tensor | None) -> None:
    if starts is not None:
        raise NotImplementedError("[attention] cu_seq_q must be absent on a device; got one")


def _page(call: Operands) -> int:
    return 0 if call.table is None else call.k.shape[2]


def received(*arguments: Any) -> Tensor:
    """Implements isentrope::received."""
    *shared, lse, weights = arguments
    return received_paged(*shared, lse, weights, None, None, None, None)


def received_paged(*arguments: Any) -> Tensor:
    """Implements isentrope::received_paged."""
    *shared, lse, weights, _, table, used, starts = arguments
    _refuse_packed(starts)
    column = torch.ones_like(lse) if weights is None else weights.contiguous()
    q = shared[0]
    output = q.new_zeros(()).expand(*q.shape[:3], 1)
    return _run(_received, shared, table, used, output, lse.contiguous().unsqueeze(0), column.contiguous().unsqueeze(-1))[0]


def _received(steps: Steps, tensors: tuple, numbers: tuple) -> tuple[Tensor, ...]:
    *shared, table, used, output, statistics, column = tensors
    call = Operands((*shared, *numbers), table, steps, used=used)
    (result,) = steps.allocate(torch.empty((call.batch, call.heads, call.keys), dtype=torch.float32, device=call.q.device))
    if min(*call.rows, call.keys) == 0:
        steps.do(Tensor.zero_, result)
        return (result,)
    own = Pass(call, LSE, output, statistics, column, None)
    spans = own.before_tiles()
    constants = {"SHAPE": own.by_key, "GIVEN": own.given, "PAGE": _page(call), **own.key_options}
    named = own.named | {"row_weights": column, "received": result, "spans": spans}
    steps.launch(received_kernel, (spans.shape[1] * call.batch * call.heads, 1, 1), named, constants)
    return (result,)


def weights_at(*arguments: Any) -> tuple[Tensor, ...]:
    """Implements isentrope::weights_at."""
    return weights_at_paged(*arguments, None, None, None, None)


def weights_at_paged(*arguments: Any) -> tuple[Tensor, ...]:
    """Implements isentrope::weights_at_paged."""
    *shared, lse, keys, _, table, used, starts = arguments
    _refuse_packed(starts)
    return _run(_weights_at, shared, table, used, lse.contiguous(), keys.contiguous())


def _weights_at(steps: Steps, tensors: tuple, numbers: tuple) -> tuple[Tensor, ...]:
    *shared, table, used, lse, keys = tensors
    call = Operands((*shared, *numbers), table, steps, used=used)
    results = steps.allocate(*(torch.empty(keys.shape, dtype=torch.float32, device=call.q.device) for _ in range(3)))
    if min(*keys.shape, call.keys) == 0:
        for result in results:
            steps.do(Tensor.zero_, result)
        return results
    shape, options = shape_of(call, "few rows", plan.chip_of(call.q.device), "lse")
    rows = resolve_rows(call, shape.ROWS)
    constants = {
        "SHAPE": shape._replace(ROWS=1, KEYS=16), "WANTED": wanted_of(LSE), "SINK": call.sinks is not None, "PAGE": _page(call),
        **options, "num_warps": 1,
    }  # fmt: skip
    named = {
        **tile_arguments(call, rows, ""), "lse": lse, "chosen": keys, "count": keys.shape[3],
        **dict(zip(("weights", "by_score", "by_bias"), results, strict=True)),
    }  # fmt: skip
    steps.launch(weights_at_kernel, (call.batch * call.heads * call.queries, 1, 1), named, constants)
    return results
