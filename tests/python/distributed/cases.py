"""A sequence on several ranks beside the same on one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import isentrope
from isentrope import Statistics, distributed
from isentrope._operators import STATISTICS
from isentrope.distributed.layout import pieces
from isentrope._arguments import call_of
from isentrope.functions import _attend

WITH_GRADIENT = tuple(statistic["name"] for statistic in STATISTICS if statistic["differentiable"])


def tensors(length: int, heads: int = 4, kv_heads: int = 2, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """q, k and v of the whole sequence, the same on every rank."""
    generator = torch.Generator().manual_seed(length)
    sizes = ((heads, 8), (kv_heads, 8), (kv_heads, 6))
    return [(torch.randn(2, h, length, d, generator=generator) / 2).to(dtype).requires_grad_() for h, d in sizes]


def rows_of(rank: int, ranks: int, length: int, layout: str) -> Tensor:
    """Positions of the rows of a rank."""
    held = pieces(length, ranks, layout)[rank]
    return torch.tensor([row for begin, end in held for row in range(begin, end)], dtype=torch.long)


def whole(q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any], return_stats: Any = True) -> Any:
    """One process's answer. Documents, which only `varlen_attention` takes by name, are those of each sequence."""
    documents = options.get("documents")
    if documents is None:
        return isentrope.attention(q, k, v, **options, return_stats=return_stats)
    others = {name: x for name, x in options.items() if name != "documents"}
    call = call_of(q, k, v, cu_seqlens_q=documents, cu_seqlens_k=documents, **others)
    return _attend(call, return_stats)


def compare(rank: int, ranks: int, length: int, way: dict[str, Any], options: dict[str, Any], **sizes: Any) -> None:
    """Output, statistics and gradients of this rank's rows are those of one process."""
    inputs = tensors(length, **sizes)
    sinks = options.get("sinks")
    leaves = [*inputs] + ([] if sinks is None else [sinks])
    output, statistics = whole(*inputs, options)
    generator = torch.Generator().manual_seed(7)
    upstream = torch.randn(output.shape, generator=generator)
    slopes = {name: torch.randn(statistics.lse.shape, generator=generator) for name in WITH_GRADIENT}

    def loss(output: Tensor, statistics: Statistics, at: Any) -> Tensor:
        terms = [(getattr(statistics, name) * slope[:, :, at]).sum() for name, slope in slopes.items()]
        return (output * upstream[:, :, at]).sum() + sum(terms)

    rows = rows_of(rank, ranks, length, way.get("layout", "contiguous"))
    part = [x.detach()[:, :, rows].clone().requires_grad_() for x in inputs]
    got, found = distributed.attention(*part, sequence_length=length, return_stats=True, **way, **options)
    close = {torch.float32: {}, torch.bfloat16: {"rtol": 2**-7, "atol": 2**-7}}[got.dtype]
    where = f"rank {rank} of {ranks}, {length} rows, {way}, {options}"
    torch.testing.assert_close(got, output[:, :, rows], **close, msg=lambda text: f"output, {where}: {text}")
    assert "distance" in WITH_GRADIENT and all(x is not None for x in found), found
    for name, a, b in zip(statistics._fields, found, statistics):
        torch.testing.assert_close(a, b[:, :, rows], msg=lambda text, name=name: f"{name}, {where}: {text}")

    want = torch.autograd.grad(loss(output, statistics, slice(None)), leaves)
    gradients = torch.autograd.grad(loss(got, found, rows), part + leaves[3:])
    # Sums in another order: their terms are as large as the largest gradient, and a weight is as exact as its logit.
    logits = statistics.max_logit
    largest = float(logits[logits > -torch.inf].abs().amax()) if (logits > -torch.inf).any() else 0
    near = {torch.float32: 1e-6 * (8 + largest), torch.bfloat16: 2**-6}[got.dtype]
    for name, a, b in zip("qkv", gradients, want):
        atol = near * max(1.0, float(b.abs().max()) if b.numel() else 0)
        torch.testing.assert_close(a, b[:, :, rows], rtol=0, atol=atol,
                                   msg=lambda text, name=name: f"gradient of {name}, {where}: {text}")  # fmt: skip
    if sinks is not None:
        total = gradients[3].clone()
        torch.distributed.all_reduce(total)
        torch.testing.assert_close(total, want[3], msg=lambda text: f"gradient of sinks, {where}: {text}")
