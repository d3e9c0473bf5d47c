"""The backward pass: from checked operands to launches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isentrope._core.fakes import gradient_results
from isentrope._core.library import BITS
from isentrope.gpu import plan
from isentrope.gpu.arguments import FUSED, TERMS_OF, blocks_of, some, strides, wanted_of, with_repair
from isentrope.gpu.kernels.gradient_rows import TERMS, Given, gradient_rows_kernel
from isentrope.gpu.kernels.gradient_sums import sink_gradient_kernel, value_norms_kernel
from isentrope.gpu.kernels.key_gradient import key_gradient_kernel
from isentrope.gpu.kernels.largest_key import largest_key_kernel
from isentrope.gpu.kernels.query_gradient import query_gradient_kernel
from isentrope.gpu.kernels.span import spans_kernel
from isentrope.gpu.launch_rows import resolve_rows, tile_arguments
from isentrope.gpu.operands import Operands
from isentrope.gpu.shapes import descriptors, shape_of


def given_of(wanted: int, has_upstream: bool, sink: bool) -> Given:
    """Returns the terms that the gradients of statistics bring."""
    arrives = {term for name in TERMS_OF if has_upstream and wanted & BITS[name] for term in TERMS_OF[name]}
    return Given(SINK=sink, **{name: name in arrives for name in Given._fields if name != "SINK"})


class Pass:
    """A backward pass: its checked operands, and what its launches share."""

    kernels = ("query gradient", "key gradient")  # of the plan

    def __init__(self, call: Operands, wanted: int, output: Tensor, statistics: Tensor, d_output: Tensor, d_statistics: Tensor | None) -> None:
        self.call, self.saved = call, wanted_of(wanted)
        self.given = given_of(wanted, d_statistics is not None, call.sinks is not None)
        chip, arrive = plan.chip_of(call.q.device), any(self.given._replace(SINK=False))
        others = any(self.given._replace(SINK=False, LINEAR=False, QUADRATIC=False))
        of_key = "all" if arrive else "lse"
        of_query = "moments" if arrive and not others else of_key
        self.by_query, self.query_options = shape_of(call, self.kernels[0], chip, of_query)
        self.by_key, self.key_options = shape_of(call, self.kernels[1], chip, of_key)
        self.rows = resolve_rows(call, self.by_key.ROWS)
        self.named = {
            **tile_arguments(call, self.rows, "o g", output, d_output), "output": output, "d_output": d_output, "statistics": statistics,
        }  # fmt: skip
        self.query_programs = blocks_of(call.queries, self.by_query.ROWS) * call.batch * call.heads
        self._launch_rows(d_statistics)

    def _launch_rows(self, d_statistics: Tensor | None) -> None:
        """Computes the terms of rows, the gradients of sinks by row, and in float16 the bounds of rows."""
        call, sink, columns = self.call, self.given.SINK, plan.padded(self.call.value_dim)
        self.terms = self.bounds = norms = terms = call.empty((*call.rows, TERMS.value), torch.float32)
        if call.q.dtype == torch.float16:
            norms = self._norms()
            self.bounds = call.empty((2, *call.rows), torch.float32)
        self.named |= {"terms": terms, "d_sinks": call.empty(call.rows, torch.float32) if sink else terms}
        named = {"d_statistics": some(d_statistics, terms), "norms": norms, "bounds": self.bounds, "dilation": call.decisions.dilation}
        call.steps.launch(gradient_rows_kernel, (blocks_of(call.queries, 16) * call.batch * call.heads, 1, 1), self.named | named, {
            "WANTED": self.saved, "UPSTREAM": d_statistics is not None, "SINK": sink, "CAPPED": call.soft_cap > 0, "ROWS": 16,
            "COLUMNS": columns, "num_warps": max(8, columns // 16), **FUSED,
        })  # fmt: skip

    def _norms(self) -> Tensor:
        """Returns the norms of values, f32 [batch, kv_heads, keys]: 0 if a boolean mask and a bias hide the key from every row."""
        call, keys_of_tile = self.call, 32
        norms = call.empty((call.batch, call.kv_heads, call.keys), torch.float32)
        named = self.named | {"norms": norms, "attn_mask": some(call.attn_mask, norms), "bias": some(call.bias, norms)}
        call.steps.launch(value_norms_kernel, (blocks_of(call.keys, keys_of_tile) * call.batch * call.kv_heads, 1, 1), named, {
            "COLUMNS": plan.padded(call.value_dim), "ATTN_MASK": call.attn_mask is not None, "BIAS": call.bias is not None,
            "ROWS": 64, "KEYS": keys_of_tile, **FUSED,
        })  # fmt: skip
        return norms

    def find_largest_keys(self) -> None:
        call = self.call
        # 8 warps on so small a tile spill in float32.
        few = {"num_warps": 4} if self.by_query.MASKED and call.q.dtype == torch.float32 else {}
        call.steps.launch(largest_key_kernel, (self.query_programs, 1, 1), self.named | {"place": self.saved.MAX_LOGIT}, {
            "SHAPE": self.by_query, "GIVEN": Given(*(False for _ in Given._fields)), "IS_PART": call.sequence_keys > 0,
            **self.query_options, **few,
        })  # fmt: skip

    def before_tiles(self, d_bias: Tensor | None = None, d_sink: Tensor | None = None) -> Tensor:
        """Computes the gradient of sinks, if it is wanted, zeros that of the bias, and finds the largest keys. Returns the query tiles
        that see each tile of keys, int32 [batches, tiles of keys, 4]."""
        call, shape = self.call, self.by_key
        if d_sink is not None and 0 not in d_sink.shape:
            call.steps.launch(sink_gradient_kernel, (call.heads, 1, 1), self.named | {"d_sink": d_sink}, {"ROWS": 1024, **FUSED})
        if d_bias is not None and 0 not in d_bias.shape:
            call.steps.do(Tensor.zero_, d_bias)
        if self.given.LARGEST_KEY:
            self.find_largest_keys()
        tiles = blocks_of(call.keys, shape.KEYS)
        spans = call.empty((self.rows.batches, tiles, 4), torch.int32)
        constants = {"ROWS": shape.ROWS, "KEYS": shape.KEYS, "num_warps": 1, **FUSED}
        named = self.named | {"tiles": self.rows.tiles, "spans": spans}
        call.steps.launch(spans_kernel, (self.rows.batches * tiles, 1, 1), named, constants)
        return spans

    def launch_by_query(self, kernel: Any, named: dict[str, Any], **constants: Any) -> None:
        """Launches a kernel of query blocks, and its repair launch if rows may differ in what they see."""
        named = self.named | {"bounds": self.bounds[0]} | named
        constants = {"SHAPE": self.by_query, "GIVEN": self.given, **constants, **self.query_options}
        self._launch_tiles(kernel, self.query_programs, self.call.decisions.rows_differ, named, constants)

    def launch_by_key(self, kernel: Any, spans: Tensor, named: dict[str, Any], apart: bool, **constants: Any) -> None:
        """Launches a kernel of tiles of keys, and its repair launch if keys may differ in who sees them. apart: once for dk and
        once for dv."""
        named = self.named | {"bounds": self.bounds[-1], "spans": spans} | named
        for DK, DV in ((True, False), (False, True)) if apart else ((True, True),):
            own = {"SHAPE": self.by_key, "GIVEN": self.given, **constants, "DK": DK, "DV": DV, **self.key_options}
            self._launch_tiles(kernel, spans.shape[1] * self.call.batch * self.call.kv_heads, self.call.decisions.keys_differ, named, own)

    def _launch_tiles(self, kernel: Any, programs: int, differ: bool, named: dict[str, Any], constants: dict[str, Any]) -> None:
        wrong = self.call.empty(programs, torch.int32) if differ else None
        self.call.steps.launch(kernel, (programs, 1, 1), named | {"wrong": wrong}, *with_repair(wrong, constants))


def begin(call: Operands, output: Tensor, d_output: Tensor | None, *wants: bool) -> tuple[tuple[Tensor, ...], Tensor | None]:
    """Allocates the gradients, and returns them with that of the output, zeros if it is absent. None instead of it: there are no
    pairs, and all gradients have become 0.

    wants: gradients of the bias, lambda and the sinks, and whether they are in float32."""
    steps = call.steps
    results = steps.allocate(*gradient_results(call.q, call.k, call.v, *wants))
    if 0 in (*call.rows, call.keys):
        for result in results:
            steps.do(Tensor.zero_, result)
        return results, None
    if d_output is None:
        zero = call.empty((), output.dtype)
        steps.do(Tensor.zero_, zero)
        d_output = zero.expand(output.shape)
    return results, d_output


def backward(
    call: Operands, wanted: int, output: Tensor, statistics: Tensor, d_output: Tensor | None, d_statistics: Tensor | None,
    wants_bias: bool, wants_lambda: bool, wants_sink: bool, in_float32: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Returns the gradients of checked operands: of q, k, v, and on request of the bias, lambda and the sinks."""
    results, d_output = begin(call, output, d_output, wants_bias, wants_lambda, wants_sink, in_float32)
    if d_output is None:
        return results
    dq, dk, dv, d_bias, d_lambda, d_sink = results
    own = Pass(call, wanted, output, statistics, d_output, d_statistics)
    spans = own.before_tiles(d_bias, d_sink)
    named = {"dq": dq, **strides("r", dq), "d_lambda": d_lambda, "d_bias": d_bias, **descriptors(call, own.by_query)}
    own.launch_by_query(query_gradient_kernel, named, D_BIAS=wants_bias, D_LAMBDA=wants_lambda)
    named = {"dk": dk, "dv": dv, **strides("r w", dk, dv)}
    own.launch_by_key(key_gradient_kernel, spans, named, own.by_key.APART)
    return results
