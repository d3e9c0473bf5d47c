"""Calls that between them choose every entry of the plan, and what becomes of their kernels on chips that are not here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from isentrope._arguments import call_of
from isentrope._operators import LSE, SUPPORT
from isentrope.gpu import launch
from isentrope.gpu.compiling import Compiled, Launch, Target, compiled, launches
from isentrope.statistics import ALL

_KERNELS = ("forward", "merge", "query_gradient", "key_gradient")


class Variant(NamedTuple):
    """A call: its type and head dimension, whether with all statistics, with everything that is added to logits (bias,
    boolean mask, soft-cap, sinks), of a few rows against a long cache, with a backward pass, with dropout."""

    dtype: torch.dtype
    dim: int
    statistics: bool = True
    masked: bool = False
    few: bool = False
    backward: bool = False
    dropout: bool = False

    @property
    def name(self) -> str:
        words = [str(self.dtype).removeprefix("torch."), str(self.dim), "statistics" * self.statistics]
        return " ".join(word for word in [*words, "masked" * self.masked, "few rows" * self.few, "dropout" * self.dropout] if word)

    def call(self) -> None:
        batch, heads, kv_heads, queries, keys = (4, 32, 8, 2, 4096) if self.few else (4, 32, 8, 1024, 1024)

        def tensor(heads: int, rows: int) -> torch.Tensor:
            return torch.empty(rows, self.dim, dtype=self.dtype).expand(batch, heads, rows, self.dim)

        q, k = tensor(heads, queries), tensor(kv_heads, keys)
        mask = bias = sinks = None
        if self.masked:
            mask, bias = torch.empty(queries, keys, dtype=torch.bool), torch.empty(queries, keys)
            mask, bias = (x.expand(batch, heads, queries, keys) for x in (mask, bias))
            sinks = torch.empty(heads)
        wanted = ALL if self.statistics else LSE
        shared = call_of(
            q, k, k, causal=True, attn_mask=mask, bias=bias, sinks=sinks, soft_cap=5.0 if self.masked else 0.0,
            dropout_p=0.1 * self.dropout, dropout_seed=7 if self.dropout else None,
        )
        if not self.backward:
            launch.attention(*shared, wanted)
            return
        statistics = torch.empty(1, dtype=torch.float32).expand((wanted & (SUPPORT - 1)).bit_count(), *q.shape[:3])
        upstream = statistics if self.statistics else None
        launch.attention_backward(*shared, wanted, q, statistics, q, upstream, self.masked, False, self.masked)

    def on(self, target: Target) -> Iterator[tuple[Launch, Compiled]]:
        """The kernels the call launches there, compiled: those whose tiles the plan chooses."""
        with launches(target) as found:
            self.call()
        for one in found:
            if one.name in _KERNELS:
                yield one, compiled(one, target)


def _halves(dtype: torch.dtype, dims: tuple[int, ...]) -> Iterator[Variant]:
    for dim in dims:
        for backward in (False, True):
            for masked in (False, True):
                yield Variant(dtype, dim, True, masked, False, backward)
            yield Variant(dtype, dim, False, False, False, backward)
        yield Variant(dtype, dim, few=True)


def every() -> list[Variant]:
    return [
        *_halves(torch.bfloat16, (64, 128, 256)), *_halves(torch.float16, (64, 128, 256)),
        *_halves(torch.float32, (64, 128, 256)),
    ]  # fmt: skip
