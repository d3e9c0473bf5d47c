"""The backward pass: from checked operands to launches."""

from __future__ import annotations

import torch
from torch import Tensor

from isentrope._core.fakes import gradient_results
from isentrope._core.library import BITS
from isentrope.gpu import plan
from isentrope.gpu.arguments import FUSED, blocks_of, dropout, some, strides, wanted_of, with_repair
from isentrope.gpu.kernels.gradient_rows import TERMS, TERMS_OF, Given, gradient_rows_kernel
from isentrope.gpu.kernels.gradient_sums import sink_gradient_kernel, value_norms_kernel
from isentrope.gpu.kernels.key_gradient import key_gradient_kernel
from isentrope.gpu.kernels.largest_key import largest_key_kernel
from isentrope.gpu.kernels.query_gradient import query_gradient_kernel
from isentrope.gpu.kernels.softmax import LOG2E
from isentrope.gpu.kernels.span import spans_kernel
from isentrope.gpu.launch_rows import resolve_rows
from isentrope.gpu.operands import Operands
from isentrope.gpu.shapes import descriptors, shape_of


def _norms(call: Operands) -> Tensor:
    """Returns the norms of values, f32 [batch, kv_heads, keys]: 0 if a boolean mask and a bias hide the key from every row."""
    norms, keys_of_tile = call.empty((call.batch, call.kv_heads, call.keys), torch.float32), 32
    constants = {
        "COLUMNS": plan.padded(call.value_dim), "ATTN_MASK": call.attn_mask is not None, "BIAS": call.bias is not None,
        "ROWS": 64, "KEYS": keys_of_tile, **FUSED,
    }  # fmt: skip
    call.steps.launch(value_norms_kernel, (blocks_of(call.keys, keys_of_tile) * call.batch * call.kv_heads, 1, 1), (
        call.v, norms, some(call.attn_mask, norms), some(call.bias, norms),
        *call.v.stride(), *strides(call.attn_mask), *strides(call.bias),
        call.heads, call.kv_heads, call.queries, call.keys, call.value_dim,
    ), constants)  # fmt: skip
    return norms


def given_of(wanted: int, has_upstream: bool, sink: bool) -> Given:
    """Returns the terms that the gradients of statistics bring."""
    arrives = {term for name in TERMS_OF if has_upstream and wanted & BITS[name] for term in TERMS_OF[name]}
    return Given(SINK=sink, **{name: name in arrives for name in Given._fields if name != "SINK"})


class Pass:
    """A backward pass: its checked operands, and what its launches share."""

    kernels = ("query gradient", "key gradient")  # of the plan

    def __init__(self, call: Operands, wanted: int, output: Tensor, statistics: Tensor, d_output: Tensor, d_statistics: Tensor | None) -> None:
        self.call, self.d_output, self.statistics, self.saved = call, d_output, statistics, wanted_of(wanted)
        self.given = given_of(wanted, d_statistics is not None, call.sinks is not None)
        chip, arrive = plan.chip_of(call.q.device), any(self.given._replace(SINK=False))
        others = any(self.given._replace(SINK=False, LINEAR=False, QUADRATIC=False))
        of_key = "all" if arrive else "lse"
        of_query = "moments" if arrive and not others else of_key
        self.by_query, self.query_options = shape_of(call, self.kernels[0], chip, of_query)
        self.by_key, self.key_options = shape_of(call, self.kernels[1], chip, of_key)
        self.rows = rows = resolve_rows(call, self.by_key.ROWS)
        self.inputs = *call.q.stride(), *call.k.stride(), *call.v.stride(), *d_output.stride()
        self.masks = *strides(call.attn_mask), *strides(call.bias)
        self.mask, self.bias = some(call.attn_mask, rows.begins), some(call.bias, rows.scales)
        self.sizes = call.heads, call.kv_heads, call.queries, call.keys, call.dim, call.value_dim
        self.others = call.soft_cap * LOG2E.value, *dropout(call)
        self.query_programs = blocks_of(call.queries, self.by_query.ROWS) * call.batch * call.heads
        self._launch_rows(output, d_statistics)

    def _launch_rows(self, output: Tensor, d_statistics: Tensor | None) -> None:
        """Computes the terms of rows, the gradients of sinks by row, and in float16 the bounds of rows."""
        call, rows, sink, columns = self.call, self.rows, self.given.SINK, plan.padded(self.call.value_dim)
        self.terms = norms = terms = call.empty((*call.rows, TERMS.value), torch.float32)
        self.d_sinks = call.empty(call.rows, torch.float32) if sink else terms
        self.bounds = terms
        if call.q.dtype == torch.float16:
            norms = _norms(call)
            self.bounds = call.empty((2, *call.rows), torch.float32)
        constants = {
            "WANTED": self.saved, "UPSTREAM": d_statistics is not None, "SINK": sink, "CAPPED": call.soft_cap > 0, "ROWS": 16,
            "COLUMNS": columns, "num_warps": max(8, columns // 16), **FUSED,
        }  # fmt: skip
        call.steps.launch(gradient_rows_kernel, (blocks_of(call.queries, 16) * call.batch * call.heads, 1, 1), (
            output, self.d_output, self.statistics, some(d_statistics, terms), some(call.sinks, terms), rows.begins, rows.ends,
            rows.own_keys, rows.scales, norms, terms, self.bounds, self.d_sinks,
            *output.stride(), *self.d_output.stride(), call.heads, call.kv_heads, call.queries, call.keys, call.value_dim,
            rows.batches, rows.heads, dropout(call)[2], call.decisions.dilation,
        ), constants)  # fmt: skip

    def find_largest_keys(self) -> None:
        call = self.call
        # 8 warps on so small a tile spill in float32.
        few = {"num_warps": 4} if self.by_query.MASKED and call.q.dtype == torch.float32 else {}
        constants = {
            "SHAPE": self.by_query, "GIVEN": Given(*(False for _ in Given._fields)), "IS_PART": call.sequence_keys > 0,
            **self.query_options, **few,
        }  # fmt: skip
        call.steps.launch(largest_key_kernel, (self.query_programs, 1, 1), (
            call.q, call.k, self.d_output, self.terms, self.statistics, self.mask, self.bias, *self.inputs, *self.masks, *self.sizes,
            *self.others, self.saved.MAX_LOGIT,
        ), constants)  # fmt: skip

    def flags(self, count: int, by_key: bool) -> Tensor | None:
        decisions = self.call.decisions
        return self.call.empty(count, torch.int32) if (decisions.keys_differ if by_key else decisions.rows_differ) else None

    def query_gradient(self, dq: Tensor, d_lambda: Tensor, d_bias: Tensor, wants_lambda: bool, wants_bias: bool) -> None:
        call, wrong = self.call, self.flags(self.query_programs, by_key=False)
        constants = {
            "SHAPE": self.by_query, "GIVEN": self.given, "D_BIAS": wants_bias, "D_LAMBDA": wants_lambda, **self.query_options,
        }  # fmt: skip
        call.steps.launch(query_gradient_kernel, (self.query_programs, 1, 1), (
            call.q, call.k, call.v, self.d_output, self.terms, self.bounds[0], dq, d_lambda, d_bias, self.mask, self.bias, wrong,
            *descriptors(call, self.by_query), *self.inputs, *dq.stride(), *self.masks, *self.sizes, *self.others,
        ), *with_repair(wrong, constants))  # fmt: skip

    def key_spans(self) -> Tensor:
        """Returns the query tiles that see each tile of keys, int32 [batches, tiles of keys, 4]."""
        call, rows, shape = self.call, self.rows, self.by_key
        tiles = blocks_of(call.keys, shape.KEYS)
        spans = call.empty((rows.batches, tiles, 4), torch.int32)
        constants = {"ROWS": shape.ROWS, "KEYS": shape.KEYS, "num_warps": 1, **FUSED}
        call.steps.launch(spans_kernel, (rows.batches * tiles, 1, 1), (rows.tiles, spans, call.queries, call.keys), constants)
        return spans

    def key_gradient(self, dk: Tensor, dv: Tensor, spans: Tensor) -> None:
        call, rows, shape = self.call, self.rows, self.by_key
        programs = spans.shape[1] * call.batch * call.kv_heads
        for DK, DV in ((True, False), (False, True)) if shape.APART else ((True, True),):
            wrong = self.flags(programs, by_key=True)
            constants = {"SHAPE": shape, "GIVEN": self.given, "DK": DK, "DV": DV, **self.key_options}
            call.steps.launch(key_gradient_kernel, (programs, 1, 1), (
                call.q, call.k, call.v, self.d_output, self.terms, self.bounds[-1], dk, dv, spans, self.mask, self.bias, wrong,
                *self.inputs, *dk.stride(), *dv.stride(), *self.masks, *self.sizes, rows.batches, *self.others,
            ), *with_repair(wrong, constants))  # fmt: skip


def backward(
    call: Operands, wanted: int, output: Tensor, statistics: Tensor, d_output: Tensor | None, d_statistics: Tensor | None,
    wants_bias: bool, wants_lambda: bool, wants_sink: bool, in_float32: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Returns the gradients of checked operands: of q, k, v, and on request of the bias, lambda and the sinks."""
    steps = call.steps
    results = steps.allocate(*gradient_results(call.q, call.k, call.v, wants_bias, wants_lambda, wants_sink, in_float32))
    dq, dk, dv, d_bias, d_lambda, d_sink = results
    if min(*call.rows, call.keys) == 0:
        for result in results:
            steps.do(Tensor.zero_, result)
        return results
    if d_output is None:
        zero = call.empty((), output.dtype)
        steps.do(Tensor.zero_, zero)
        d_output = zero.expand(output.shape)
    own = Pass(call, wanted, output, statistics, d_output, d_statistics)
    if wants_sink:
        sizes = call.batch, call.heads, call.queries
        steps.launch(sink_gradient_kernel, (call.heads, 1, 1), (own.d_sinks, d_sink, *sizes), {"ROWS": 1024, **FUSED})
    if wants_bias:
        steps.do(Tensor.zero_, d_bias)
    if own.given.LARGEST_KEY:
        own.find_largest_keys()
    spans = own.key_spans()
    own.query_gradient(dq, d_lambda, d_bias, wants_lambda, wants_bias)
    own.key_gradient(dk, dv, spans)
    return results
