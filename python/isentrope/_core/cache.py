"""The cache of decode steps and of packed queries: numbers or 8-bit codes, in pages or contiguous."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isentrope._core.checks import check_ranks, integers, kind, on_device_of
from isentrope._core.library import refuse_arguments


@dataclass
class Cache:
    """Cache arguments of `decode` and `varlen_attention`, after the checks that the library cannot make."""

    q: Tensor
    k: Tensor
    v: Tensor
    block_table: Tensor | None
    seqused_k: Tensor | None
    k_scale: Tensor | None
    v_scale: Tensor | None
    cu_seq_q: Tensor | None = None

    def starts(self) -> Tensor | None:
        return None if self.cu_seq_q is None else integers("cu_seq_q", self.cu_seq_q, self.q, self.k)

    def pages(self) -> Tensor:
        if self.block_table is None:
            self._check_shapes()
            return torch.arange(self.q.shape[0], device=self.q.device).unsqueeze(1)
        return integers("block_table", self.block_table, self.q, self.k)

    def keys(self) -> Tensor:
        if self.seqused_k is not None:
            return integers("seqused_k", self.seqused_k, self.q, self.k)
        self._check_shapes()
        if self.block_table is not None and self.block_table.dim() != 2:
            raise ValueError(f"[attention] block_table must have 2 dimensions; got {self.block_table.dim()}")
        sequences, pages = (self.q.shape[0], 1) if self.block_table is None else self.block_table.shape
        return self.q.new_full((sequences,), pages * self.k.shape[2], dtype=torch.int64)

    def _check_shapes(self) -> None:
        refuse_arguments([("q", self.q), ("k", self.k)])
        check_ranks(q=self.q, k=self.k)

    def scales(self) -> tuple[Tensor, ...]:
        """Returns the scales of codes; empty for a cache of numbers."""
        if self.k_scale is None and self.v_scale is None:
            if self.k.dtype is torch.int8:
                raise ValueError("[attention] k_scale and v_scale must be given for int8 caches; got none: isentrope.quantize returns them")
            return ()
        for name, scale in (("k_scale", self.k_scale), ("v_scale", self.v_scale)):
            if not isinstance(scale, Tensor) or scale.dtype is not torch.float32:
                raise TypeError(f"[attention] {name} must be a float32 tensor; got {kind(scale)}")
            on_device_of(self.q, name, scale)
            refuse_arguments([(name, scale)])
        if not (self.q.is_cpu or self.q.is_meta):
            raise NotImplementedError(f"[attention] int8 caches must be on the CPU; got {self.q.device}: pass bfloat16 or float16 there")
        return self.k_scale, self.v_scale  # type: ignore[return-value]
