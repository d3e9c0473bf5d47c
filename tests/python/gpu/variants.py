"""Calls that together choose every entry of the plan, and their kernels compiled for chips that need not be present."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from triton.runtime.jit import JITFunction

from isentrope._core.call import call_of
from isentrope._core.library import LSE, SUPPORT
from isentrope.gpu import launch, launch_derivatives
from isentrope.statistics import ALL
from src.gpu.compiling import Compiled, Launch, Target, compiled, launches

_RULE = "log_length(length=total)*attn_temperature_tuning"  # reads each of the lengths that a row has
_PAGE = 16


@contextmanager
def changed_sources(sources: dict[JITFunction, str]) -> Iterator[None]:
    """Gives functions of the kernels other sources during the block."""
    before = {function: function.src for function in sources}
    try:
        _update(sources)
        yield
    finally:
        _update(before)


def _update(sources: dict[JITFunction, str]) -> None:
    for function, source in sources.items():
        function._unsafe_update_src(source)
    # Callers have a hash of the functions that they call, by which Triton finds a compiled kernel.
    for name, module in list(sys.modules.items()):
        if name.startswith("isentrope.gpu.kernels."):
            for found in vars(module).values():
                if isinstance(found, JITFunction):
                    found.hash = None


class Variant(NamedTuple):
    """A call, and the features of its kernels.

    masked: bias, boolean mask, soft-cap and sinks. few: a few rows against a long cache. documents: with padding,
    prefixes, a boolean mask and a rule of every length. value_dim: 0: same as dim."""

    dtype: torch.dtype
    dim: int
    statistics: bool = True
    masked: bool = False
    few: bool = False
    backward: bool = False
    dropout: bool = False
    documents: bool = False
    paged: bool = False
    value_dim: int = 0
    dilation: int = 0

    @property
    def crowded(self) -> bool:
        """Returns whether tiles are masked, or dropout meets gradients of statistics: both take many registers."""
        return self.masked or self.dilation > 1 or (self.dropout and self.statistics and self.backward)

    @property
    def name(self) -> str:
        words = [str(self.dtype).removeprefix("torch."), str(self.dim), f"to {self.value_dim}" * (self.value_dim > 0)]
        words += ["statistics" * self.statistics, "masked" * self.masked, "few rows" * self.few, "dropout" * self.dropout]
        words += ["documents" * self.documents, "paged" * self.paged, f"dilation {self.dilation}" * (self.dilation > 0)]
        return " ".join(word for word in words if word)

    def call(self) -> None:
        batch, heads, kv_heads, queries, keys = (4, 32, 8, 2, 4096) if self.few else (4, 32, 8, 1024, 1024)
        caches, cache_rows = (batch * keys // _PAGE, _PAGE) if self.paged else (batch, keys)

        def tensor(batch: int, heads: int, rows: int, dim: int) -> torch.Tensor:
            return torch.empty(rows, dim, dtype=self.dtype).expand(batch, heads, rows, dim)

        value_dim = self.value_dim or self.dim
        q, out = tensor(batch, heads, queries, self.dim), tensor(batch, heads, queries, value_dim)
        k, v = tensor(caches, kv_heads, cache_rows, self.dim), tensor(caches, kv_heads, cache_rows, value_dim)
        wanted = ALL if self.statistics else LSE
        shared = call_of(
            q, k, v, causal=True, soft_cap=5.0 if self.masked else 0.0, dropout_p=0.1 * self.dropout,
            dropout_seed=7 if self.dropout else None, **self.masks(batch, heads, queries, keys),
        )  # fmt: skip
        if self.paged:
            pages, used = torch.zeros(batch, keys // _PAGE, dtype=torch.int32), torch.full((batch,), keys)
            launch.decode(*shared, pages, used, None, wanted)
        elif not self.backward:
            launch.attention(*shared, wanted)
        else:
            statistics = torch.empty(1, dtype=torch.float32).expand((wanted & (SUPPORT - 1)).bit_count(), *q.shape[:3])
            upstream = statistics if self.statistics else None
            launch.attention_backward(*shared, wanted, out, statistics, out, upstream, self.masked, False, self.masked, False)

    def derivatives(self) -> None:
        """Calls the tangent pass and the second-order pass with all tangents."""
        q, k = (torch.empty(1024, self.dim, dtype=self.dtype).expand(4, heads, 1024, self.dim) for heads in (32, 8))
        call = call_of(q, k, k, causal=True, soft_cap=5.0 if self.masked else 0.0, **self.masks(4, 32, 1024, 1024))
        wanted = (ALL if self.statistics else LSE) & (SUPPORT - 1)
        statistics, masks = torch.empty(1).expand(wanted.bit_count(), *q.shape[:3]), call if self.masked else call_of(q, k, k)
        point = *call, wanted, q, statistics, q, k, k, masks.bias, statistics[0] if self.masked else None, masks.sinks
        launch_derivatives.tangent(*point)
        launch_derivatives.second_order(*point, q, statistics, q, statistics if self.statistics else None, *(self.masked,) * 3)

    def masks(self, batch: int, heads: int, queries: int, keys: int) -> dict[str, Any]:
        arguments: dict[str, Any] = {"dilation": self.dilation}
        if self.masked or self.documents:
            arguments["attn_mask"] = torch.empty(queries, keys, dtype=torch.bool).expand(batch, heads, queries, keys)
        if self.masked:
            arguments["bias"] = torch.empty(queries, keys).expand(batch, heads, queries, keys)
            arguments["sinks"] = torch.empty(heads)
        if self.documents:
            numbers = dict.fromkeys(("prefix_keys", "key_begin", "key_end"), torch.ones(batch, dtype=torch.int64))
            starts = dict.fromkeys(("cu_seqlens_q", "cu_seqlens_k"), torch.tensor([0, 100, queries]))
            arguments |= numbers | starts | {"rule": _RULE}
        return arguments

    def on(self, target: Target, repairs: bool = False) -> Iterator[tuple[Launch, Compiled]]:
        """Returns the call's kernels compiled for a target; repairs: those of repair launches, else all others."""
        with launches(target) as recorded:
            self.call()
        for one in recorded:
            if one.name.endswith("_repair") == repairs:
                yield one, compiled(one, target)


def _halves(dtype: torch.dtype, dims: tuple[int, ...]) -> Iterator[Variant]:
    for dim in dims:
        for backward in (False, True):
            for masked in (False, True):
                yield Variant(dtype, dim, True, masked, False, backward)
            yield Variant(dtype, dim, False, False, False, backward)
        yield from (Variant(dtype, dim, statistics, few=True) for statistics in (True, False))


def every() -> list[Variant]:
    return [
        *_halves(torch.bfloat16, (64, 128, 256)), *_halves(torch.float16, (64, 128, 256)),
        *_halves(torch.float32, (64, 128, 256)),
    ]  # fmt: skip


def with_tiles_of_others() -> list[Variant]:
    """Returns variants with the tiles of one above and other kernels: padded and small dimensions, pages, masks of
    rows, dropout with gradients of statistics."""
    bf16 = torch.bfloat16
    dims = [Variant(bf16, 16), Variant(bf16, 16, backward=True)]
    dims += [Variant(bf16, 192, value_dim=128), Variant(bf16, 192, value_dim=128, backward=True)]
    dilated = [  # dilations within a tile of keys, and wider ones, whose empty tiles are skipped
        Variant(bf16, 128, statistics=False, backward=backward, dilation=dilation)
        for dilation in (4, 256) for backward in (False, True)
    ]  # fmt: skip
    dropped = [
        Variant(dtype, dim, backward=True, dropout=True) for dtype in (bf16, torch.float16) for dim in (64, 128)
    ]  # fmt: skip
    return [*dims, *dilated, *dropped, Variant(bf16, 128, few=True, paged=True), Variant(bf16, 64, documents=True)]


def padded() -> list[Variant]:
    """Returns further dimensions, as many as long_compiled.py has time for."""
    return [Variant(torch.bfloat16, dim, backward=backward) for dim in (32, 96) for backward in (False, True)]
