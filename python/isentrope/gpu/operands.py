"""Arguments of a call in the kernels' form, checked by the library's validator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isentrope._core.call import Call
from isentrope._core.checks import check_ranks
from isentrope._core.library import AXES, CHECKED, DEFAULTS, refuse_unknown
from isentrope._core.masks import Masks
from isentrope.gpu import plan
from isentrope.gpu.kernels.rows import rows_kernel
from isentrope.gpu.prepared import Steps
from isentrope.rules import rule_text

LARGEST_DIM = 256
# Limit of lengths, beyond which tables of a rule would fill the device.
LONGEST = 1 << 26

_NAMES = Call._fields
_arguments = attrgetter(*_NAMES)
# Arguments that the kernels use besides the masks, by the names of rows_kernel.
_KNOWN = {
    "compiled_scale", "compiled_soft_cap", "lambda_", "attn_mask", "bias", "sinks", "dropout_seed", "rule", "soft_cap",
    "dropout_p",
}  # fmt: skip
# Their contents are also checked, so the validator gets valid placeholders.
_STARTS = ("cu_seqlens_q", "cu_seqlens_k")
# Arguments of one dimension, of which the kernels take no strides.
_LISTS = [name for name, axes in AXES.items() if len(axes) == 1]


refuse_unknown("isentrope.gpu: the kernels", "argument of the library", DEFAULTS, _KNOWN | {*rows_kernel.arg_names})


class Operands:
    """Common arguments of the operators, by the names of their schema, and properties derived from their shapes.

    steps: notes allocations and launches of the call."""

    q: Tensor
    k: Tensor
    v: Tensor
    if TYPE_CHECKING:
        rule: str
        compiled_scale: Any
        compiled_soft_cap: Any

        def __getattr__(self, name: str) -> Any: ...

    def __init__(
        self, arguments: Sequence[Any], table: Tensor | None = None, steps: Steps | None = None, starts: Tensor | None = None,
        used: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Checks the arguments. table, starts, used: page table, beginnings of packed queries, and keys of each sequence, of a paged
        cache."""
        self.steps, self.starts, self.used = steps or Steps(), starts, used
        self.__dict__.update(zip(_NAMES, arguments, strict=True))
        for name in _LISTS:
            # Another rank is refused by the check, and its copy might not fit in memory.
            if (numbers := getattr(self, name)) is not None and numbers.dim() == 1:
                setattr(self, name, numbers.contiguous())
        # These numbers are contents of tensors, which a signature does not have.
        self.steps.repeatable &= self.compiled_scale is None and self.compiled_soft_cap is None
        if self.compiled_scale is not None:
            self.rule, self.compiled_scale = rule_text(self.rule, self.compiled_scale.item()), None
        if self.compiled_soft_cap is not None:
            self.soft_cap, self.compiled_soft_cap = self.compiled_soft_cap.item(), None
        self.masks, self.table = Masks.of(self), table
        check_ranks(q=self.q, k=self.k, v=self.v)
        self.batch, self.heads, self.queries, self.dim = self.q.shape
        self.sequences = 0 if starts is None else len(starts) - 1
        self.kv_heads, self.value_dim = self.k.shape[1], self.v.shape[3]
        self.keys = self.k.shape[2] if table is None else table.shape[1] * self.k.shape[2]
        self._check()

    @cached_property
    def decisions(self) -> Any:
        given = [
            (name, 1 if isinstance(x, Tensor) else x)
            for name, x in zip(_NAMES[3:], _arguments(self)[3:])
            if isinstance(x, Tensor) or (type(x) is int and x != DEFAULTS[name])
        ]
        return plan.decisions(self.heads, self.kv_heads, self.queries, self.table is not None, tuple(given))

    @property
    def rows(self) -> tuple[int, int, int]:
        return self.batch, self.heads, self.queries

    def empty(self, shape: int | Sequence[int], dtype: torch.dtype) -> Tensor:
        """Allocates memory that the call's kernels share."""
        return self.steps.allocate(torch.empty(shape, dtype=dtype, device=self.q.device))[0]

    def _check(self) -> None:
        """Raises the CPU operator's errors, except for contents of tensors, because reading them would stall the
        device. Invalid documents are clamped to valid ranges instead; an invalid page number reads outside the
        cache."""
        sequences = self.batch if self.starts is None else self.sequences
        if self.table is not None and self.used is not None and not len(self.used) == len(self.table) == sequences:
            raise ValueError(
                f"[attention] block_table and seqused_k must have a row for each of the {sequences} sequences; got "
                f"{len(self.table)} and {len(self.used)}"
            )
        device, like = self.q.device, []
        for name, x in zip(_NAMES, _arguments(self)):
            if isinstance(x, Tensor):
                if x.device != device:
                    raise ValueError(f"[attention] {name} must be on {device}, as q does; got {x.device}")
                x = x.dtype, x.shape
            like.append(x)
        _validate(tuple(like), None if self.table is None else tuple(self.table.shape), self.starts is not None and len(self.starts))
        if self.queries >= 1 << 31 or self.keys >= 1 << 31:
            raise ValueError(f"[attention] queries and keys must be below 2^31 on this device; got {self.queries} and {self.keys}")


def pages_of(table: Tensor, used: Tensor, starts: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Returns the page table, the keys of each sequence and the beginnings of packed queries in the kernels' form."""
    for name, tensor, rank in (("block_table", table, 2), ("seqused_k", used, 1), ("cu_seq_q", starts, 1)):
        if tensor is not None and tensor.dim() != rank:
            raise ValueError(f"[attention] {name} must have {rank} dimensions; got {tensor.dim()}")
    if table.dtype != torch.int32:
        # A larger number is invalid too, and must not wrap around to a valid page.
        table = table.clamp(-1, torch.iinfo(torch.int32).max).int()
    return table.contiguous(), used.contiguous(), None if starts is None else starts.contiguous()


@cache
def _element(dtype: torch.dtype) -> Tensor:
    return torch.empty((), dtype=dtype)


@lru_cache(4096)
def _validate(like: tuple, table: tuple | None, packed: int) -> None:
    # Placeholders of the same shapes and types that take no memory.
    arguments = dict(zip(_NAMES, (_element(x[0]).expand(x[1]) if isinstance(x, tuple) else x for x in like)))
    for name, side in zip(_STARTS, "qk"):
        starts = arguments[name]
        if starts is not None and starts.dim() == 1 and len(starts) > 0:
            arguments[name] = torch.zeros(len(starts), dtype=starts.dtype)
            arguments[name][-1] = arguments[side].shape[2] * (len(starts) > 1)
    pages = None if table is None else torch.zeros(table, dtype=torch.int32)
    CHECKED.check_call(*arguments.values(), pages, torch.zeros(packed, dtype=torch.int64) if packed else None)
    for name, wide in (("q", arguments["q"]), ("v", arguments["v"])):
        if wide.shape[3] > LARGEST_DIM:
            raise ValueError(
                f"[attention] {name} must have a head dimension of at most {LARGEST_DIM} on this device; got "
                f"{wide.shape[3]}: move the call to the CPU, which has no limit"
            )


@lru_cache(80)
def _rule_tables(rule: str, dim: int, count: int, reach: int, capped: bool, device: Any) -> tuple[tuple[Tensor, ...], int]:
    """Tables by visible keys, by position and by the call's length, and the number of heads that differ in one."""
    ranges = ((0, 0, count), (1, -count, count + reach), (2, 0, count))
    tables = tuple(CHECKED.rule_table(rule, source, dim, first, size, capped).to(device) for source, first, size in ranges)
    return tables, max(table.shape[1] for table in tables)


class RuleTables:
    """A rule as tables for kernels. For each length of a row they have the factors before the soft-cap, after it and on
    the bias, computed by the library in double. Rules of a product that read different lengths have a table each."""

    def __init__(self, call: Any) -> None:
        # Rounded up, so that lengths that grow in decoding reuse their table for a long time.
        longest = max(call.sequence_keys, call.keys, 1)
        furthest = call.query_offset + call.queries + longest
        for name, needed in (("keys, or sequence_keys,", longest), ("query_offset", furthest)):
            if needed > LONGEST:
                raise ValueError(f"[attention] {name} must be below 2^26 on this device; got {needed}")
        count, reach = (1 << needed.bit_length() for needed in (longest, furthest))
        tables, self.heads = _rule_tables(call.rule, call.dim, count, reach, call.soft_cap > 0, call.q.device)
        self.visible, self.position, self.total = tables
        self.position_first = -count
        call.steps.keep(*tables)

    @property
    def reads_visible(self) -> bool:
        return self.visible.shape[2] > 2
