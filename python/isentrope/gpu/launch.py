"""Launches the kernels for the arguments of an operator. Nothing here waits for the device or reads its tensors."""

from __future__ import annotations

import ctypes
from functools import cache
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from isentrope._core.fakes import gradient_results, results_of
from isentrope._core.library import ARGUMENTS, AXES, BITS, DEFAULTS, STATISTICS, SUPPORT, refuse_unknown
from isentrope._core.masks import Masks
from isentrope.gpu import plan
from isentrope.gpu.dispatch import launch
from isentrope.gpu.kernels.forward import forward_kernel
from isentrope.gpu.kernels.gradient_rows import TERMS, TERMS_OF, Given, gradient_rows_kernel
from isentrope.gpu.kernels.key_gradient import key_gradient_kernel
from isentrope.gpu.kernels.largest_key import largest_key_kernel
from isentrope.gpu.kernels.query_gradient import query_gradient_kernel
from isentrope.gpu.kernels.results import MOMENTS, Wanted
from isentrope.gpu.kernels.rows import rows_kernel
from isentrope.gpu.kernels.shares import SHARED
from isentrope.gpu.kernels.softmax import LOG2E
from isentrope.gpu.kernels.span import spans_kernel
from isentrope.gpu.kernels.sums import PAIRS
from isentrope.gpu.kernels.tile import Shape
from isentrope.gpu.operands import Operands, RuleTables

_FEW_ROWS = 16
# Fused multiply-adds, which Triton from 3.10 on enables only on request.
_FUSED = {"enable_fp_fusion": True}
# Beyond every position, and far from the limits of int64.
_FAR = 1 << 62
# Keys are below 2^31 here, so larger dilations have the same effect.
_FURTHEST_KEY = (1 << 31) - 1
_mask_parameters = attrgetter(*(name for name in rows_kernel.arg_names if name in Masks._fields))
_MASK_LISTS = {name: f"HAS_{name.upper()}" for name in Masks._fields if AXES[name]}
# Lists by which rows of one sequence see different keys.
_LISTS_OF_ROWS = tuple(name for name in _MASK_LISTS if "batch" not in AXES[name])
_PARTS_ROWS = [argument["name"] for argument in ARGUMENTS if argument["parts_rows"]]
# Statistics that need sums over tiles besides that of lse.
_SUMMED = tuple(s["name"].upper() for s in STATISTICS if s["sums"])
# Statistics computed from a row's sums.
_STATISTICS = tuple(name.lower() for name in Wanted._fields if name not in ("SUPPORT", "MOMENTS"))
refuse_unknown(
    "isentrope.gpu: the kernels", "statistic of the library", BITS, (*_STATISTICS, "lambda_", "support")
)
refuse_unknown(
    "isentrope.gpu: the kernels", "gradient of a statistic of the library",
    (s["name"] for s in STATISTICS if s["differentiable"]), TERMS_OF,
)  # fmt: skip


def _blocks(count: int, size: int) -> int:
    """Number of blocks of a size that hold so many."""
    return -(-count // size)


def _slice(name: str, wanted: int) -> int:
    """Returns the slice of a statistic in their tensor; -1 if it was not requested."""
    bit = BITS[name]
    return (wanted & (bit - 1)).bit_count() if wanted & bit else -1


@cache
def _wanted(wanted: int) -> Wanted:
    slices = {name.upper(): _slice(name, wanted) for name in _STATISTICS}
    moments = max(count if wanted & BITS[name] else 0 for name, count in MOMENTS.items())
    return Wanted(**slices, SUPPORT=bool(wanted & SUPPORT), MOMENTS=moments)


def _beside_lse(wanted: Wanted) -> bool:
    """Returns whether a statistic is requested that needs sums over tiles besides that of lse."""
    return any(getattr(wanted, name) >= 0 for name in _SUMMED)


def _strides(tensor: Tensor | None, count: int = 4) -> tuple[int, ...]:
    return (0,) * count if tensor is None else tensor.stride()


def _some(tensor: Tensor | None, other: Tensor) -> Tensor:
    """Returns `tensor`, or `other` as a placeholder: kernels take a pointer for every argument, even if unused."""
    return other if tensor is None else tensor


def _mask_arguments(masks: Masks, other: Tensor) -> list[Any]:
    """Returns the parts of a mask in the order of rows_kernel."""
    parts = _mask_parameters(masks)
    return [other if x is None else x if type(x) is not int or x < _FAR else _FAR for x in parts]


class _Rows:
    """Results of rows_kernel, which documents them."""

    def __init__(self, call: Operands, tile: int, used: Tensor | None = None, lengths: Tensor | None = None,
                 needs_lambda: bool = False, counters: Tensor | None = None) -> None:  # fmt: skip
        device = call.q.device
        mask, lambda_ = call.attn_mask, call.lambda_
        by_batch = call.masks.differ_by_batch or any(x is not None for x in (used, mask, lambda_, lengths))
        tables = RuleTables(call) if lambda_ is None else None
        by_head = mask is not None or lambda_ is not None or tables.heads > 1 or lengths is not None
        self.batches, self.heads = call.batch if by_batch else 1, call.heads if by_head else 1
        self.tile = tile
        tiles = _blocks(call.queries, tile)
        integers = torch.empty(self.batches * (3 * call.queries + 4 * tiles), dtype=torch.int32, device=device)
        sizes = (self.batches * call.queries,) * 3 + (self.batches * 4 * tiles,)
        self.begins, self.ends, self.own_keys, self.tiles = integers.split_with_sizes(sizes)
        self.scales = torch.empty((4, self.batches, self.heads, call.queries), dtype=torch.float32, device=device)
        count = mask is not None and (
            lengths is not None or needs_lambda or tables is not None and tables.reads_visible
        )
        anything = self.scales
        visible, position, total = (tables.visible, tables.position, tables.total) if tables else (anything,) * 3
        # With 64 keys at a time, or 4 warps, the addresses of a boolean mask leave too few registers.
        constants = {flag: getattr(call.masks, name) is not None for name, flag in _MASK_LISTS.items()} | {
            "LAMBDA": lambda_ is not None, "COUNT": count, "POSITION": tables is not None and position.shape[-1] > 0,
            "TOTAL": tables is not None and total.shape[-1] > 0, "LENGTHS": lengths is not None, "USED": used is not None,
            "ROWS": tile, "KEYS": 32, "num_warps": 8 if count else 4, **_FUSED,
        }  # fmt: skip
        launch(rows_kernel, (tiles * self.batches * self.heads, 1, 1), (
            self.begins, self.ends, self.own_keys, self.scales, self.tiles, _some(lengths, integers),
            _some(counters, integers), 0 if counters is None else len(counters),
            _some(lambda_, anything), *_strides(lambda_, 3),
            _some(mask, integers), *_strides(mask),
            0 if call.cu_seqlens_q is None else len(call.cu_seqlens_q) - 1,
            _some(used, integers), visible, visible.shape[-1], position, tables.position_first if tables else 0, position.shape[-1],
            total, total.shape[-1], tables.heads if tables else 1,
            self.batches, self.heads, call.queries, call.keys, *_mask_arguments(call.masks, integers),
        ), constants)  # fmt: skip


def _dropout(call: Operands) -> tuple[Any, ...]:
    """Returns the seed, the least bits of a kept weight, its factor, and the offsets of positions."""
    p = ctypes.c_float(call.dropout_p).value
    seed = call.q if call.dropout_seed is None else call.dropout_seed
    return seed, round(p * 2**32), 1 / (1 - p), call.query_offset, call.key_offset


def _dilation(call: Operands) -> int:
    return min(max(call.dilation, 1), _FURTHEST_KEY)


def _shape(call: Operands, kernel: str, chip: plan.Chip, statistics: bool) -> tuple[Shape, dict[str, Any]]:
    """Returns a tile kernel's compile-time parameters and launch options.

    statistics: whether statistics besides lse are requested, or have upstream gradients."""
    dim, columns = plan.padded(call.dim), plan.padded(call.value_dim)
    masked = call.attn_mask is not None or call.bias is not None or call.dilation > 1
    padded = (dim, columns) != (call.dim, call.value_dim)
    widest = max(dim, columns)
    # Padding counts as a mask, because at 96 the key gradient spilled 56 bytes on sm_90 with the tile of 128, and
    # forward with all statistics 8. So does dropout with gradients of statistics: 216 bytes in the key gradient at 128,
    # 144 in the query gradient at 64.
    crowded = masked or (padded and (kernel == "key gradient" or (statistics and chip.kind == "sm90")))
    crowded |= kernel in ("query gradient", "key gradient") and statistics and call.dropout_p > 0
    other = padded or call.soft_cap > 0 or call.dropout_p > 0 or call.sinks is not None
    results = "other" if other else "all" if statistics else "lse"
    tiles = plan.tiles(kernel, chip, call.q.dtype, widest, crowded, results)
    descriptors = kernel in ("forward", "few rows") and _has_descriptors(call, tiles, chip)
    shape = Shape(
        tiles.rows, tiles.keys, tiles.stages, dim, columns, dim == call.dim, columns == call.value_dim,
        call.soft_cap > 0, call.attn_mask is not None, call.bias is not None, masked, plan.precision(kernel, chip, widest),
        call.dropout_p > 0, call.dropout_p > 0 and call.key_offset % 4 == 0,
        _dilation(call), plan.chained(kernel, chip, call.q.dtype, masked, tiles.warps) if statistics else 0,
        APART=tiles.apart, ONE_LOOP=kernel == "few rows" and not masked and not descriptors,
        PLACES=tiles.places, DESCRIPTORS=descriptors,
    )  # fmt: skip
    registers = {"maxnreg": tiles.registers} if tiles.registers else {}
    return shape, {"num_warps": tiles.warps, **registers, **_FUSED}


def _has_descriptors(call: Operands, tiles: plan.Tiles, chip: plan.Chip) -> bool:
    """Whether whole tiles of keys and values are loaded by tensor descriptors: the tiles ask for it, the chip has bulk copies,
    and dimensions, pages and strides allow it."""
    if not tiles.descriptors or chip.kind not in ("sm90", "sm100", "interpreter"):
        return False
    padded = any(plan.padded(columns) != columns for columns in (call.dim, call.value_dim))
    fits = not padded and tiles.keys <= 256 and (call.table is None or call.k.shape[2] % tiles.keys == 0)
    return fits and all(map(_has_descriptor, (call.k, call.v)))


def _has_descriptor(x: Tensor) -> bool:
    """Whether bulk copies take a tensor: its rows have no gaps, other strides and the address are multiples of 16 bytes."""
    strides = [stride * x.element_size() for stride in x.stride()[:3]]
    return x.stride(3) == 1 and x.data_ptr() % 16 == 0 and all(stride > 0 and stride % 16 == 0 for stride in strides)


def _descriptors(call: Operands, shape: Shape) -> tuple[TensorDescriptor | None, ...]:
    """Tensor descriptors of keys and values; None without them."""
    if not shape.DESCRIPTORS:
        return None, None
    return tuple(TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, shape.KEYS, x.shape[3]]) for x in (call.k, call.v))


def _hides(call: Operands, by_key: bool = False) -> bool:
    """Returns whether rows of a query block may see different keys of a tile; by_key: or keys of a tile different
    rows."""
    if call.dilation > 1 or call.attn_mask is not None or call.bias is not None:
        return True
    if any(getattr(call, name) is not None for name in (_MASK_LISTS if by_key else _LISTS_OF_ROWS)):
        return True
    return (by_key or call.queries > 1) and any(getattr(call, name) != DEFAULTS[name] for name in _PARTS_ROWS)


def _own_is_last(call: Operands) -> bool:
    """Returns whether no row sees a key after its own position, whatever the tensors of the call hold."""
    return (call.causal != 0 or call.window_right == 0) and call.prefix_keys is None


def _with_repair(wrong: Tensor | None, constants: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Returns the constants of a kernel's launches: the first, then the one in repair mode for programs that had non-finite sums.

    wrong: flags of the programs; None if none is flagged. Programs whose sums were finite return from the repair launch at once;
    checking first would synchronize with the device.
    """
    first = constants | {"REPAIR": False}
    return (first,) if wrong is None else (first, constants | {"REPAIR": True})


def forward(call: Operands, wanted: int, used: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Returns output, statistics and support of checked operands. used [batch]: keys of each sequence of a cache."""
    output, statistics, support = results_of(call.q, call.value_dim, wanted)
    if output.numel() == 0:
        return output, statistics, support
    if call.table is not None:
        support = support.contiguous()
    chip = plan.chip_of(call.q.device)
    group = call.heads // call.kv_heads
    packed = group * call.queries <= _FEW_ROWS or call.table is not None
    place, results = _slice("lambda_", wanted), {"WANTED": _wanted(wanted), "SINK": call.sinks is not None}
    shape, options = _shape(call, "few rows" if packed else "forward", chip, _beside_lse(results["WANTED"]))
    measured = results["WANTED"].DISTANCE >= 0 and shape.CHAINED == PAIRS.value and not shape.ONE_LOOP
    shape = shape._replace(OWN_LAST=measured and _own_is_last(call))
    lanes, length = (call.kv_heads, group * call.queries) if packed else (call.heads, call.queries)
    blocks = call.batch * lanes * _blocks(length, shape.ROWS)
    splits = plan.shares_of(chip, blocks, call.keys, shape.KEYS, shape.PLACES)
    counters = torch.empty(blocks, dtype=torch.int32, device=call.q.device) if splits > 1 else None
    rows = _Rows(call, shape.ROWS, used, needs_lambda=place >= 0, counters=counters)
    if place >= 0:
        statistics.select(0, place).copy_(rows.scales.select(0, 3))
    states = sums = rows.scales
    # A logit of -inf makes a moment NaN. Few rows are masked at once instead of repaired.
    checked = _hides(call) or (results["WANTED"].MOMENTS > 0 and not packed)
    wrong = torch.empty(splits * blocks, dtype=torch.int32, device=call.q.device) if checked else None
    if splits > 1:
        states, sums = (
            torch.empty((splits, blocks, shape.ROWS, width), dtype=torch.float32, device=call.q.device)
            for width in (SHARED.value, shape.COLUMNS)
        )
    sink = _some(call.sinks, rows.scales)
    page = 0 if call.table is None else call.k.shape[2]
    constants = {"SHAPE": shape, **results, "PAGE": page, "PACKED": packed, "SPLIT": splits > 1, **options}
    launch(forward_kernel, (blocks, 1, splits), (
        call.q, call.k, call.v, output, statistics, support, rows.begins, rows.ends, rows.own_keys, rows.scales, sink,
        _some(call.attn_mask, rows.begins), _some(call.bias, rows.scales), _some(call.table, rows.begins),
        states, sums, counters, wrong, *_descriptors(call, shape), *call.q.stride(), *call.k.stride(), *call.v.stride(), *output.stride(),
        *_strides(call.attn_mask), *_strides(call.bias),
        call.heads, call.kv_heads, call.queries, call.keys, call.dim, call.value_dim,
        0 if call.table is None else call.table.stride(0), rows.batches, rows.heads,
        call.soft_cap * LOG2E.value, splits, *_dropout(call),
    ), *_with_repair(wrong, constants))  # fmt: skip
    return output, statistics, support


def attention(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Implements isentrope::attention."""
    *shared, wanted = arguments
    call = Operands(shared)
    call.check()
    return forward(call, wanted)


def _norms(call: Operands) -> Tensor:
    """Returns norms of values, f32 [batch, kv_heads, keys]: 0 if a boolean mask or a bias hides the key from every
    row."""
    norms = torch.linalg.vector_norm(call.v, dim=-1, dtype=torch.float32)
    for seen in (
        None if call.attn_mask is None else call.attn_mask.any(2),
        None if call.bias is None else call.bias.amax(2) != float("-inf"),
    ):
        if seen is not None:
            norms = norms.where(seen.unflatten(1, (call.kv_heads, -1)).any(2), 0.0)
    return norms


def _gradient_rows(
    call: Operands, rows: _Rows, saved: Wanted, output: Tensor, statistics: Tensor, d_output: Tensor, d_statistics: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the results of gradient_rows_kernel. Without sinks the last one is empty; only float16 has bounds."""
    sink, columns = call.sinks is not None, plan.padded(call.value_dim)
    terms = torch.empty((*call.rows, TERMS.value), dtype=torch.float32, device=call.q.device)
    d_sinks = torch.empty(call.rows, dtype=torch.float32, device=call.q.device) if sink else terms
    norms = bounds = terms
    if call.q.dtype == torch.float16:
        norms = _norms(call)
        bounds = torch.empty((2, *call.rows), dtype=torch.float32, device=call.q.device)
    constants = {
        "WANTED": saved, "UPSTREAM": d_statistics is not None, "SINK": sink, "CAPPED": call.soft_cap > 0, "ROWS": 16,
        "COLUMNS": columns, "num_warps": max(8, columns // 16), **_FUSED,
    }  # fmt: skip
    launch(gradient_rows_kernel, (_blocks(call.queries, 16) * call.batch * call.heads, 1, 1), (
        output, d_output, statistics, _some(d_statistics, terms), _some(call.sinks, terms), rows.begins, rows.ends,
        rows.own_keys, rows.scales, norms, terms, bounds, d_sinks,
        *output.stride(), *d_output.stride(), call.heads, call.kv_heads, call.queries, call.keys, call.value_dim,
        rows.batches, rows.heads, _dropout(call)[2], _dilation(call),
    ), constants)  # fmt: skip
    return terms, bounds, d_sinks


def attention_backward(*arguments: Any) -> tuple[Tensor, ...]:
    """Implements isentrope::attention_backward."""
    *shared, wanted, output, statistics, d_output, d_statistics, wants_bias, wants_lambda, wants_sink, in_float32 = arguments
    call = Operands(shared)
    call.check()
    wants = wants_bias, wants_lambda, wants_sink
    dq, dk, dv, d_bias, d_lambda, d_sink = gradient_results(call.q, call.k, call.v, *wants, in_float32)
    if min(*call.rows, call.keys) == 0:
        return tuple(x.zero_() for x in (dq, dk, dv, d_bias, d_lambda, d_sink))
    if d_output is None:
        d_output = output.new_zeros(()).expand(output.shape)
    chip, sink = plan.chip_of(call.q.device), call.sinks is not None
    saved = _wanted(wanted)
    given_names = [name for name in TERMS_OF if d_statistics is not None and wanted & BITS[name]]
    arrives = {term for name in given_names for term in TERMS_OF[name]}
    given = Given(SINK=sink, **{name: name in arrives for name in Given._fields if name != "SINK"})
    (by_query, query_options), (by_key, key_options) = (
        _shape(call, kernel, chip, bool(arrives)) for kernel in ("query gradient", "key gradient")
    )
    rows = _Rows(call, by_key.ROWS)
    lanes = call.batch * call.heads
    terms, bounds, d_sinks = _gradient_rows(call, rows, saved, output, statistics, d_output, d_statistics)
    if wants_sink:
        # Rows are summed in a fixed order, whichever program computed them.
        d_sink.copy_(d_sinks.sum((0, 2)))
    if wants_bias:
        d_bias.zero_()
    inputs = *call.q.stride(), *call.k.stride(), *call.v.stride(), *d_output.stride()
    masks = *_strides(call.attn_mask), *_strides(call.bias)
    mask, bias = _some(call.attn_mask, rows.begins), _some(call.bias, rows.scales)
    sizes = call.heads, call.kv_heads, call.queries, call.keys, call.dim, call.value_dim
    others = call.soft_cap * LOG2E.value, *_dropout(call)
    if given.LARGEST_KEY:
        # 8 warps on so small a tile spill in float32.
        few = {"num_warps": 4} if by_query.MASKED and call.q.dtype == torch.float32 else {}
        constants = {
            "SHAPE": by_query, "GIVEN": Given(*(False for _ in Given._fields)), "IS_PART": call.sequence_keys > 0,
            **query_options, **few,
        }  # fmt: skip
        launch(largest_key_kernel, (_blocks(call.queries, by_query.ROWS) * lanes, 1, 1), (
            call.q, call.k, d_output, terms, statistics, mask, bias, *inputs, *masks, *sizes, *others, saved.MAX_LOGIT,
        ), constants)  # fmt: skip
    query_blocks, key_tiles = _blocks(call.queries, by_query.ROWS), _blocks(call.keys, by_key.KEYS)
    programs = query_blocks * lanes, key_tiles * call.batch * call.kv_heads
    spans = torch.empty((rows.batches, key_tiles, 4), dtype=torch.int32, device=call.q.device)
    constants = {"ROWS": by_key.ROWS, "KEYS": by_key.KEYS, "num_warps": 1, **_FUSED}
    launch(spans_kernel, (rows.batches * key_tiles, 1, 1), (rows.tiles, spans, call.queries, call.keys), constants)

    def flags(count: int, by_key: bool) -> Tensor | None:
        return torch.empty(count, dtype=torch.int32, device=call.q.device) if _hides(call, by_key) else None

    wrong = flags(programs[0], by_key=False)
    constants = {"SHAPE": by_query, "GIVEN": given, "D_BIAS": wants_bias, "D_LAMBDA": wants_lambda, **query_options}
    launch(query_gradient_kernel, (programs[0], 1, 1), (
        call.q, call.k, call.v, d_output, terms, bounds[0], dq, d_lambda, d_bias, mask, bias, wrong,
        *inputs, *dq.stride(), *masks, *sizes, *others,
    ), *_with_repair(wrong, constants))  # fmt: skip
    for DK, DV in ((True, False), (False, True)) if by_key.APART else ((True, True),):
        wrong = flags(programs[1], by_key=True)
        constants = {"SHAPE": by_key, "GIVEN": given, "DK": DK, "DV": DV, **key_options}
        launch(key_gradient_kernel, (programs[1], 1, 1), (
            call.q, call.k, call.v, d_output, terms, bounds[-1], dk, dv, spans, mask, bias, wrong,
            *inputs, *dk.stride(), *dv.stride(), *masks, *sizes, rows.batches, *others,
        ), *_with_repair(wrong, constants))  # fmt: skip
    return dq, dk, dv, d_bias, d_lambda, d_sink


def decode(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Implements isentrope::decode."""
    *shared, table, used, wanted = arguments
    for name, tensor, rank in (("block_table", table, 2), ("seqused_k", used, 1)):
        if tensor.dim() != rank:
            raise ValueError(f"[decode] {name} must have {rank} dimensions; got {tensor.dim()}")
    # Larger page numbers are invalid too.
    call = Operands(shared, table.clamp(-1, torch.iinfo(torch.int32).max).int().contiguous())
    if len(used) != call.batch or len(table) != call.batch:
        raise ValueError(
            f"[decode] block_table and seqused_k must have a row for each of the {call.batch} sequences; got "
            f"{len(table)} and {len(used)}"
        )
    call.check()
    return forward(call, wanted, used.contiguous())


def row_lengths(*arguments: Any) -> Tensor:
    """Implements isentrope::row_lengths."""
    call = Operands(arguments)
    call.check()
    lengths = torch.empty(call.rows, dtype=torch.int64, device=call.q.device)
    if lengths.numel() > 0:
        _Rows(call, 64, lengths=lengths)
    return lengths
