"""Computes jagged tensors as packed documents, and refuses other layouts that are not dense."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isentrope._core.attend import attend
from isentrope._core.call import call_of
from isentrope._core.checks import kind
from isentrope._core.options import DocumentOptions
from isentrope._core.values import shown
from isentrope.statistics import StatisticNames, converted

_OPTIONS = frozenset(DocumentOptions.__annotations__)


def is_jagged(tensor: object) -> bool:
    return getattr(tensor, "layout", None) is torch.jagged


def jagged_attention(q: Any, k: Any, v: Any, return_stats: StatisticNames, options: dict[str, Any]) -> Any:
    """Computes `attention` of tensors whose third dimension (queries or keys) varies between sequences."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not is_jagged(tensor) or tensor.dim() != 4 or tensor._ragged_idx != 2 or tensor.lengths() is not None:
            raise ValueError(
                f"[attention] {name} must be jagged as the others are, [batch, heads, jagged, dim] without holes; got "
                f"{kind(tensor)}"
            )
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    if unknown := given.keys() - _OPTIONS:
        name = min(unknown)
        raise ValueError(f"[attention] {name} must be absent with jagged tensors; got {shown(given[name])}")
    if k.shape[2] != v.shape[2]:
        raise ValueError(
            "[attention] v must have the offsets of k, as from nested_tensor_from_jagged(values, k.offsets()); got another "
            f"tensor of offsets, for {len(v.offsets()) - 1} sequences"
        )
    starts = q.offsets()
    call = call_of(
        *(x.values().unsqueeze(0) for x in (q, k, v)), cu_seqlens_q=starts, cu_seqlens_k=k.offsets(), **given
    )

    def as_q(rows: Tensor) -> Tensor:
        """Converts [1, heads, all rows, ...] to the layout of q."""
        return torch.nested.nested_tensor_from_jagged(rows.squeeze(0).transpose(0, 1), starts).transpose(1, 2)

    return converted(attend(call, return_stats), as_q, as_q)
