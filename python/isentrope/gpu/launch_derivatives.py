"""The tangent pass and the second-order pass, from arguments to launches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isentrope._core.call import SHARED, TENSORS
from isentrope._core.fakes import gradient_results, results_of
from isentrope._core.library import SUPPORT
from isentrope.gpu import plan, prepared
from isentrope.gpu.arguments import FUSED, blocks_of, some, strides, with_repair
from isentrope.gpu.kernels.gradient_sums import sink_gradient_kernel
from isentrope.gpu.kernels.second_order import second_order_key_kernel, second_order_query_kernel, second_order_rows_kernel
from isentrope.gpu.kernels.tangent import tangent_kernel
from isentrope.gpu.kernels.tangent_tile import Moves
from isentrope.gpu.launch_backward import Pass, given_of
from isentrope.gpu.operands import Operands
from isentrope.gpu.prepared import Steps


class DerivativePass(Pass):
    """A pass whose arguments have tangents: those of q, k, v, bias, lambda and sinks, or None."""

    kernels = ("tangents by query", "tangents by key")

    def __init__(self, call: Operands, wanted: int, tensors: tuple, tangents: tuple) -> None:
        """tensors: output, statistics, d_output and d_statistics."""
        super().__init__(call, wanted, *tensors)
        self.moves = Moves(*(x is not None for x in tangents))
        t_q, t_k, t_v, t_bias, t_lambda, self.t_sinks = tangents
        self.moved = some(t_q, call.q), some(t_k, call.k), some(t_v, call.v), some(t_lambda, self.terms), some(t_bias, self.terms)
        self.to_moved = *(x for tensor in self.moved[:3] for x in tensor.stride()), *strides(t_bias)


def _operands(steps: Steps, tensors: tuple, numbers: tuple) -> Operands:
    call = Operands((*tensors, *numbers), steps=steps)
    call.check()
    return call


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
    call = _operands(steps, tensors[:TENSORS], tuple(of_call))
    t_output, t_statistics = steps.allocate(*results_of(call.q, call.value_dim, wanted & (SUPPORT - 1))[:2])
    steps.do(Tensor.zero_, t_statistics)  # some have no tangent
    if min(*call.rows, call.keys) == 0:
        steps.do(Tensor.zero_, t_output)
        return t_output, t_statistics
    own = DerivativePass(call, wanted, (output, statistics, output, None), tuple(tangents))
    own.given = given_of(wanted, True, call.sinks is not None)
    if own.given.LARGEST_KEY:
        own.find_largest_keys()
    wrong = own.flags(own.query_programs, by_key=False)
    constants = {"SHAPE": own.by_query, "GIVEN": own.given, "MOVES": own.moves, "WANTED": own.saved, **own.query_options}
    steps.launch(tangent_kernel, (own.query_programs, 1, 1), (
        call.q, call.k, call.v, output, own.terms, statistics, own.mask, own.bias, some(call.sinks, own.terms), *own.moved,
        some(own.t_sinks, own.terms), t_output, t_statistics, wrong, *own.inputs, *own.masks, *own.to_moved, *t_output.stride(),
        *own.sizes, *own.others,
    ), *with_repair(wrong, constants))  # fmt: skip
    return t_output, t_statistics


def second_order(*arguments: Any) -> tuple[Tensor, ...]:
    """Implements isentrope::attention_second_order."""
    return _run(_second_order, arguments, arguments[SHARED + 9 : SHARED + 13], arguments[SHARED + 13 :])


def _second_order(steps: Steps, tensors: tuple, numbers: tuple) -> tuple[Tensor, ...]:
    *of_call, wanted, wants_bias, wants_lambda, wants_sinks = numbers
    output, statistics, *tangents, t_output, t_statistics, d_output, d_statistics = tensors[TENSORS:]
    call = _operands(steps, tensors[:TENSORS], tuple(of_call))
    results = steps.allocate(*gradient_results(call.q, call.k, call.v, wants_bias, wants_lambda, wants_sinks, False))
    dq, dk, dv, d_bias, d_lambda, d_sink = results
    if min(*call.rows, call.keys) == 0:
        for result in results:
            steps.do(Tensor.zero_, result)
        return results
    if d_output is None:
        zero = call.empty((), output.dtype)
        steps.do(Tensor.zero_, zero)
        d_output = zero.expand(output.shape)
    own = DerivativePass(call, wanted, (output, statistics, d_output, d_statistics), tuple(tangents))
    changes, columns = call.empty((*call.rows, 4), torch.float32), plan.padded(call.value_dim)
    steps.launch(second_order_rows_kernel, (blocks_of(call.queries, 16) * call.batch * call.heads, 1, 1), (
        output, d_output, t_output, statistics, some(d_statistics, changes), t_statistics, some(call.sinks, changes),
        some(own.t_sinks, changes), changes, own.d_sinks, *output.stride(), *d_output.stride(), *t_output.stride(),
        call.heads, call.queries, call.value_dim,
    ), {
        "WANTED": own.saved, "UPSTREAM": d_statistics is not None, "SINK": call.sinks is not None, "MOVES": own.moves, "ROWS": 16,
        "COLUMNS": columns, "num_warps": max(8, columns // 16), **FUSED,
    })  # fmt: skip
    if wants_sinks:
        sizes = call.batch, call.heads, call.queries
        steps.launch(sink_gradient_kernel, (call.heads, 1, 1), (own.d_sinks, d_sink, *sizes), {"ROWS": 1024, **FUSED})
    if wants_bias:
        steps.do(Tensor.zero_, d_bias)
    if own.given.LARGEST_KEY:
        own.find_largest_keys()
    spans = own.key_spans()
    shared = call.q, call.k, call.v, d_output, own.terms, changes, own.mask, own.bias, *own.moved
    constants = {"SHAPE": own.by_query, "GIVEN": own.given, "MOVES": own.moves}
    wrong = own.flags(own.query_programs, by_key=False)
    steps.launch(second_order_query_kernel, (own.query_programs, 1, 1), (
        *shared, dq, d_lambda, d_bias, wrong, *own.inputs, *own.masks, *own.to_moved, *dq.stride(), *own.sizes, *own.others,
    ), *with_repair(wrong, {**constants, "D_BIAS": wants_bias, "D_LAMBDA": wants_lambda, **own.query_options}))  # fmt: skip
    programs = spans.shape[1] * call.batch * call.kv_heads
    for DK in (True, False):
        wrong = own.flags(programs, by_key=True)
        steps.launch(second_order_key_kernel, (programs, 1, 1), (
            *shared, dk, dv, spans, wrong, *own.inputs, *own.masks, *own.to_moved, *dk.stride(), *dv.stride(), *own.sizes,
            own.rows.batches, *own.others,
        ), *with_repair(wrong, {**constants, "SHAPE": own.by_key, "DK": DK, "DV": not DK, **own.key_options}))  # fmt: skip
    return results
