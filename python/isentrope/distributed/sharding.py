"""Splits tensors along the sequence, and joins them."""

from __future__ import annotations

import torch
from torch import Tensor

from isentrope._core.checks import kind
from isentrope._core.values import checked_integer
from isentrope.distributed.exchange import Group, exchange, group_name, resolved
from isentrope.distributed.layout import check_length, local_slices, pieces, rows_of

_TAG = 0  # tag of messages without a configuration


def shard(tensor: Tensor, dim: int, group: Group = None, layout: str = "contiguous") -> Tensor:
    """Returns this rank's rows of `tensor`, such as sequences, labels or position ids, which every rank has whole.

    tensor: dense, of any shape; dim: its dimension of rows, which may count from the end.
    layout: "contiguous" or "zigzag". Rows are split as by `torch.chunk`: the last parts may be shorter, or empty.
    Differentiable; a view if the part is in one piece. Raises TypeError or ValueError that names the argument.
    """
    _check("shard", tensor, dim)
    ranks = resolved(group_name(group))
    ranges = pieces(tensor.shape[dim], ranks.size(), layout)[ranks.rank()]
    parts = [tensor.narrow(dim, begin, end - begin) for begin, end in ranges]
    return parts[0] if len(parts) == 1 else torch.cat(parts or [tensor.narrow(dim, 0, 0)], dim)


def gather(
    tensor: Tensor, dim: int, group: Group = None, layout: str = "contiguous", sequence_length: int | None = None
) -> Tensor:
    """Returns the whole sequence on every rank, joined from the parts that `shard` gives the ranks.

    tensor: dense, of any shape; dim: its dimension of rows. sequence_length: rows of the whole sequence; None: every rank
    has as many as this one. Differentiable: the gradient of a part is the sum of the ranks' gradients of it. Raises
    ValueError if this rank has another number of rows, and RuntimeError within the group's time limit if a rank is missing.
    """
    _check("gather", tensor, dim)
    check_length(sequence_length)
    name = group_name(group)
    ranks = resolved(name)
    dim = dim % tensor.dim()
    length = tensor.shape[dim] * ranks.size() if sequence_length is None else sequence_length
    pieces_by_rank = pieces(length, ranks.size(), layout)
    part = rows_of(pieces_by_rank[ranks.rank()])
    if tensor.shape[dim] != part:
        raise ValueError(
            f"[gather] tensor must have {part} rows of {length} on rank {ranks.rank()}; got {tensor.shape[dim]}"
        )
    rest = [*tensor.shape[:dim], *tensor.shape[dim + 1 :]]
    columns = tensor.new_empty(rest).numel()
    rows = tensor.movedim(dim, 0).reshape(-1)
    sizes = [rows_of(ranges) * columns for ranges in pieces_by_rank]
    sent = [rows.numel()] * ranks.size()
    received = exchange(rows.repeat(ranks.size()), sent, sizes, _TAG, "as rows are gathered", name)
    parts = []
    for ranges, values in zip(pieces_by_rank, received.split(sizes)):
        values = values.view(rows_of(ranges), *rest)
        parts += [(range_, values[local]) for range_, local in zip(ranges, local_slices(ranges, ranges))]
    ordered = [values for _, values in sorted(parts, key=lambda part: part[0])]
    return torch.cat(ordered or [received.view(0, *rest)]).movedim(0, dim)


def _check(function: str, tensor: Tensor, dim: int) -> None:
    """Raises TypeError or ValueError unless the tensor has this dimension and it can be split."""
    dense = isinstance(tensor, Tensor) and not (tensor.is_nested or tensor.is_quantized)
    if not dense or tensor.layout is not torch.strided:
        raise TypeError(f"[{function}] tensor must be a dense tensor; got {kind(tensor)}")
    if not -tensor.dim() <= checked_integer(function, "dim", dim) < tensor.dim():
        raise ValueError(f"[{function}] dim must be one of the {tensor.dim()} of tensor; got {dim}")
