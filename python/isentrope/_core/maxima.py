"""Gathers the largest logit of each head of the attention module that is running, on the device and in compiled code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from isentrope.statistics import unpack, wanted_bits

_NAMES = ("max_logit",)
BITS = wanted_bits(_NAMES)


class Maxima:
    """Largest logit of each head of one module, over all its calls since `reset`.

    A second call on the same input, as activation checkpointing makes it, changes nothing.
    """

    def __init__(self, heads: int, like: Tensor, first_head: Callable[[int], int]) -> None:
        """first_head: maps the number of heads of a call to the index of its first head, for ranks that have a part of them."""
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        self.largest = torch.full((heads,), -torch.inf, dtype=dtype, device=like.device)
        """[heads]; -inf for heads without a call."""
        self.called = False
        self._first_head = first_head
        # Compiled code, and the CUDA graphs made of it, must update this tensor and not a copy.
        torch._dynamo.mark_static_address(self.largest)

    def reset(self) -> None:
        self.largest.fill_(-torch.inf)

    @torch.no_grad()
    def hear(self, max_logit: Tensor, first_head: int | None) -> None:
        """Updates the maxima. max_logit: [batch, heads, rows]; a DTensor may be sharded by batch or heads."""
        self.called = True
        local = max_logit.to_local() if hasattr(max_logit, "placements") else max_logit
        if local.numel() == 0:
            return
        largest = local.amax((0, 2)).to(self.largest.dtype)
        target = self.largest
        if (heads := largest.shape[0]) != target.shape[0]:
            target = target.narrow(0, self._first_head(heads) if first_head is None else first_head, heads)
        target.copy_(torch.maximum(target, largest))


class _Running:
    maxima: Maxima | None = None
    """Maxima of the module whose forward function is running; None if no maxima are collected."""


# An attribute instead of a global variable, because compilers trace assignments to it.
running = _Running()


def hear(wanted: int, statistics: Sequence[Tensor] | Tensor, support: Tensor, first_head: int | None = None) -> None:
    """Passes an operator's statistics for the bits `wanted` on, if a module's maxima are collected."""
    if running.maxima is not None:
        max_logit = unpack(_NAMES, wanted, statistics, support).max_logit
        assert max_logit is not None
        running.maxima.hear(max_logit, first_head)
