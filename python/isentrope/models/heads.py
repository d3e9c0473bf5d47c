"""Classifies heads by their statistics: they attend to near keys, to all keys, or to a sink."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

KINDS = ("local", "global", "sink")
# Mean distance over n - 1: 1/2 for a head that averages over all keys, 1 for one that attends to the first key only.
NEAR, FAR = 1 / 8, 3 / 4


def slopes(entropy: Tensor, log_n: Tensor) -> Tensor:
    """Returns dH / d ln n of each head, by least squares over [blocks, layers, heads]; NaN if n is constant."""
    x = log_n - log_n.mean(0)
    return (x * (entropy - entropy.mean(0))).sum(0) / x.square().sum(0)


def for_json(numbers: Tensor) -> Any:
    """Returns nested lists for JSON, with None for non-finite numbers."""
    if numbers.dim():
        return [for_json(x) for x in numbers]
    value = numbers.item()
    return value if math.isfinite(value) else None


def padded(tensors: list[Tensor]) -> Tensor:
    """Stacks tensors whose last dimensions differ, with NaN past their ends."""
    most = max(x.shape[-1] for x in tensors)
    return torch.stack([nn.functional.pad(x, (0, most - x.shape[-1]), value=torch.nan) for x in tensors])


def where(flags: Tensor) -> list[tuple[int, int]]:
    """Returns (layer, head) of the flags [layers, heads] that are set."""
    return [(layer, head) for layer, head in flags.nonzero().tolist()]


def kinds(reach: Tensor) -> list[list[str]]:
    """Returns local, global or sink for each head [layers, heads]."""
    index = torch.bucketize(reach, torch.tensor([NEAR, FAR], dtype=reach.dtype))
    return [[KINDS[head] for head in layer] for layer in index.tolist()]
