"""The requests of one step of the engine."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Step(NamedTuple):
    """Requests of one step, as operators over a cache take them: their pages, numbers of keys and beginnings of queries."""

    table: Tensor
    used: Tensor
    starts: Tensor

    @classmethod
    def of(cls, metadata: Any, page_size: int) -> Step:
        """Returns the step of a group of layers, which share its metadata."""
        if not hasattr(metadata, "isentrope_step"):
            pages = -(-metadata.max_seq_len // page_size)
            used = metadata.seq_lens.long()
            metadata.isentrope_step = cls(metadata.block_table[: len(used), :pages], used, metadata.query_start_loc.long())
        return metadata.isentrope_step

    def positions(self) -> Tensor:
        """Returns the position of each query in its request."""
        first = (self.used - self.starts[1:]).repeat_interleave(self.starts.diff())
        return first + torch.arange(len(first), device=first.device)
