"""Compares a sequence on several ranks with the same one on one process."""

from __future__ import annotations

from typing import Any

import torch
from dense import DIFFERENTIABLE
from rounding import Rounding
from torch import Tensor

import isentrope
from isentrope import Statistics, distributed
from isentrope._core.attend import attend
from isentrope._core.call import call_of
from isentrope.distributed.layout import pieces


def tensors(length: int, heads: int = 4, kv_heads: int = 2, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Returns q, k and v of the whole sequence, the same on every rank."""
    generator = torch.Generator().manual_seed(length)
    sizes = ((heads, 8), (kv_heads, 8), (kv_heads, 6))
    return [(torch.randn(2, h, length, d, generator=generator) / 2).to(dtype).requires_grad_() for h, d in sizes]


def rows_of(rank: int, ranks: int, length: int, layout: str) -> Tensor:
    ranges = pieces(length, ranks, layout)[rank]
    return torch.tensor([row for begin, end in ranges for row in range(begin, end)], dtype=torch.long)


def whole(q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any], return_stats: Any = True) -> Any:
    """Returns the results of one process. Documents are passed to `varlen_attention`."""
    documents = options.get("documents")
    if documents is None:
        return isentrope.attention(q, k, v, **options, return_stats=return_stats)
    others = {name: x for name, x in options.items() if name != "documents"}
    call = call_of(q, k, v, cu_seqlens_q=documents, cu_seqlens_k=documents, **others)
    return attend(call, return_stats)


def weights(q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> Tensor:
    """Returns p of every row and key, by using unit vectors as values."""
    every = torch.eye(k.shape[2], max(k.shape[2], 1)).expand(*k.shape[:2], -1, -1)
    without_sinks = {name: x for name, x in options.items() if name != "sinks"}
    with torch.no_grad():
        return whole(q.float(), k.float(), every, without_sinks, False)[..., : k.shape[2]]


def compare(rank: int, ranks: int, length: int, way: dict[str, Any], options: dict[str, Any], **sizes: Any) -> None:
    """Requires that this rank's output, statistics and gradients equal those of one process."""
    inputs = tensors(length, **sizes)
    sinks = options.get("sinks")
    leaves = [*inputs] + ([] if sinks is None else [sinks])
    output, statistics = whole(*inputs, options)
    generator = torch.Generator().manual_seed(7)
    upstream = torch.randn(output.shape, generator=generator)
    slopes = {name: torch.randn(statistics.lse.shape, generator=generator) for name in DIFFERENTIABLE}

    def loss(output: Tensor, statistics: Statistics, local_rows: Any) -> Tensor:
        terms = [(getattr(statistics, name) * slope[:, :, local_rows]).sum() for name, slope in slopes.items()]
        return (output * upstream[:, :, local_rows]).sum() + sum(terms)

    rows = rows_of(rank, ranks, length, way.get("layout", "contiguous"))
    part = [x.detach()[:, :, rows].clone().requires_grad_() for x in inputs]
    got, got_statistics = distributed.attention(*part, sequence_length=length, return_stats=True, **way, **options)
    where = f"rank {rank} of {ranks}, {length} rows, {way}, {options}"
    rounding = Rounding(inputs, weights(*inputs, options), statistics)

    def same(name: str, a: Tensor, b: Tensor, bound: Tensor) -> None:
        assert a.shape == b.shape and a.dtype == b.dtype, f"{name}, {where}: {a.shape} {a.dtype}, {b.shape} {b.dtype}"
        off = torch.where(a == b, 0, (a.double() - b.double()).abs())
        assert (off <= bound).all(), f"{name}, {where}: {(off / bound).max():.3g} times what rounding explains"

    same("output", got, output[:, :, rows], rounding.of_output()[:, :, rows])
    assert "distance" in DIFFERENTIABLE and all(x is not None for x in got_statistics), got_statistics
    for name, a, b, bound in zip(statistics._fields, got_statistics, statistics, rounding.of_statistics()):
        same(name, a, b[:, :, rows], bound[:, :, rows])

    want = torch.autograd.grad(loss(output, statistics, slice(None)), leaves)
    gradients = list(torch.autograd.grad(loss(got, got_statistics, rows), part + leaves[3:]))
    if sinks is not None:
        torch.distributed.all_reduce(gradients[3])
    bounds = rounding.of_gradients(upstream, slopes)
    for name, a, b, bound in zip(("q", "k", "v"), gradients, want, bounds):
        same(f"gradient of {name}", a, b[:, :, rows], bound[:, :, rows])
    if sinks is not None:
        same("gradient of sinks", gradients[3], want[3], bounds[3])
