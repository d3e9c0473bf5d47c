"""Totals of the statistics, for the page of metrics of vLLM's server."""

from __future__ import annotations

import functools

from prometheus_client import Counter
from torch import Tensor


@functools.cache
def counters() -> tuple[Counter, ...]:
    """Returns the counters of this process. With PROMETHEUS_MULTIPROC_DIR, the server's page adds those of all processes."""
    named = {
        "tokens": "Tokens whose attention was computed",
        "entropy_nats": "Sum over tokens of the mean entropy of the heads",
        "first_weight": "Sum over tokens of the heads' mean weight of the first key",
    }
    return tuple(Counter(f"isentrope:{name}", words, ["layer"]) for name, words in named.items())


def add(layer: str, entropy: Tensor, first_weight: Tensor) -> None:
    """Adds the readings of one layer and step, each [tokens]."""
    sums = len(entropy), float(entropy.sum()), float(first_weight.sum())
    for counter, value in zip(counters(), sums, strict=True):
        counter.labels(layer).inc(value)
