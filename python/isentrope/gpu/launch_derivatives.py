"""The tangent pass and the second-order pass, from arguments to launches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isentrope._core.call import SHARED, TENSORS
from isentrope._core.fakes import results_of
from isentrope._core.library import SUPPORT
from isentrope.gpu import plan, prepared
from isentrope.gpu.arguments import FUSED, blocks_of, some, strides
from isentrope.gpu.kernels.second_order import second_order_key_kernel, second_order_query_kernel, second_order_rows_kernel
from isentrope.gpu.kernels.tangent import tangent_kernel
from isentrope.gpu.kernels.tangent_tile import Moves
from isentrope.gpu.launch_backward import Pass, begin, given_of
from isentrope.gpu.operands import Operands
from isentrope.gpu.prepared import Steps


class DerivativePass(Pass):
    """A pass whose arguments have tangents: those of q, k, v, bias, lambda and sinks, or None."""

    kernels = ("tangents by query", "tangents by key")

    def __init__(self, call: Operands, wanted: int, tensors: tuple, tangents: tuple) -> None:
        """tensors: output, statistics, d_output and d_statistics."""
        super().__init__(call, wanted, *tensors)
        self.moves = Moves(*(x is not None for x in tangents))
        t_q, t_k, t_v, t_bias, t_lambda, t_sinks = tangents
        moved = some(t_q, call.q), some(t_k, call.k), some(t_v, call.v)
        self.named |= dict(zip(("t_q", "t_k", "t_v"), moved)) | strides("tq tk tv tb", *moved, t_bias) | {
            "t_lambda": some(t_lambda, self.terms), "t_bias": some(t_bias, self.terms), "t_sinks": some(t_sinks, self.terms),
        }  # fmt: skip


def _run(plan_of: Any, arguments: tuple, more: tuple, flags: tuple) -> tuple[Tensor, ...]:
    """more: tensors behind those of the call, its output, its statistics and its six tangents."""
    (*shared, wanted), tensors = arguments[: SHARED + 1], list(arguments[SHARED + 1 : SHARED + 9])
    for at in (6, 7):  # tangents of lambda and sinks
        tensors[at] = None if tensors[at] is None else tensors[at].contiguous()
    return prepared.run(plan_of, (*shared[:TENSORS], *tensors, *more), (*shared[TENSORS:], wanted, *flags))


def tangent(*arguments: Any) -> tuple[Tensor, ...]:
    """Implements isentrope::attention_tangent."""
    return _run(_tangent, arguments, (), ())


def _tangent(steps: Steps, tensors: tuple, numbers: tuple) -> tuple[Tensor, ...]:
    *of_call, wanted = numbers
    output, statistics, *tangents = tensors[TENSORS:]
    call = Operands((*tensors[:TENSORS], *of_call), steps=steps)
    t_output, t_statistics = steps.allocate(*results_of(call.q, call.value_dim, wanted & (SUPPORT - 1))[:2])
    steps.do(Tensor.zero_, t_statistics)  # some have no tangent
    if min(*call.rows, call.keys) == 0:
        steps.do(Tensor.zero_, t_output)
        return t_output, t_statistics
    own = DerivativePass(call, wanted, (output, statistics, output, None), tuple(tangents))
    own.given = given_of(wanted, True, call.sinks is not None)
    if own.given.LARGEST_KEY:
        own.find_largest_keys()
    named = {"t_output": t_output, "t_statistics": t_statistics, **strides("r", t_output)}
    own.launch_by_query(tangent_kernel, named, MOVES=own.moves, WANTED=own.saved)
    return t_output, t_statistics


def second_order(*arguments: Any) -> tuple[Tensor, ...]:
    """Implements isentrope::attention_second_order."""
    return _run(_second_order, arguments, arguments[SHARED + 9 : SHARED + 13], arguments[SHARED + 13 :])


def _second_order(steps: Steps, tensors: tuple, numbers: tuple) -> tuple[Tensor, ...]:
    *of_call, wanted, wants_bias, wants_lambda, wants_sinks = numbers
    output, statistics, *tangents, t_output, t_statistics, d_output, d_statistics = tensors[TENSORS:]
    call = Operands((*tensors[:TENSORS], *of_call), steps=steps)
    results, d_output = begin(call, output, d_output, wants_bias, wants_lambda, wants_sinks, False)
    if d_output is None:
        return results
    dq, dk, dv, d_bias, d_lambda, d_sink = results
    own = DerivativePass(call, wanted, (output, statistics, d_output, d_statistics), tuple(tangents))
    changes, columns = call.empty((*call.rows, 4), torch.float32), plan.padded(call.value_dim)
    own.named |= {"changes": changes, "t_output": t_output, **strides("t", t_output), "t_statistics": t_statistics}
    named = own.named | {"d_statistics": some(d_statistics, changes)}
    steps.launch(second_order_rows_kernel, (blocks_of(call.queries, 16) * call.batch * call.heads, 1, 1), named, {
        "WANTED": own.saved, "UPSTREAM": d_statistics is not None, "SINK": own.given.SINK, "MOVES": own.moves, "ROWS": 16, "COLUMNS": columns,
        "num_warps": max(8, columns // 16), **FUSED,
    })  # fmt: skip
    spans = own.before_tiles(d_bias, d_sink)
    named = {"dq": dq, **strides("r", dq), "d_lambda": d_lambda, "d_bias": d_bias}
    own.launch_by_query(second_order_query_kernel, named, MOVES=own.moves, D_BIAS=wants_bias, D_LAMBDA=wants_lambda)
    named = {"dk": dk, "dv": dv, **strides("r w", dk, dv)}
    own.launch_by_key(second_order_key_kernel, spans, named, True, MOVES=own.moves)
    return results
