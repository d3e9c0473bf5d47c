"""The requests of one step of the engine."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Step(NamedTuple):
    """Requests of one step: beginnings of their queries, their numbers of keys and their pages."""

    starts: Tensor
    used: Tensor
    table: Tensor

    @classmethod
    def of(cls, metadata: Any, page_size: int) -> Step:
        """Returns the step of a group of layers, which share its metadata."""
        if not hasattr(metadata, "isentrope_step"):
            pages = -(-metadata.max_seq_len // page_size)
            used = metadata.seq_lens.long()
            metadata.isentrope_step = cls(metadata.query_start_loc.long(), used, metadata.block_table[: len(used), :pages])
        return metadata.isentrope_step

    def positions(self) -> Tensor:
        """Returns the position of each query in its request."""
        return torch.arange(int(self.starts[-1]), device=self.starts.device) + self.per_query(self.used - self.starts[1:])

    def per_query(self, numbers: Tensor) -> Tensor:
        """Returns each request's number for each of its queries."""
        return numbers.repeat_interleave(self.starts.diff())
