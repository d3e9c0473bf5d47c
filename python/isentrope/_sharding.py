"""DTensors sharded by batch or by head stay as they are."""

from __future__ import annotations

from typing import Any

from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from isentrope._operators import LAMBDA, OPS, SHARED, SINK, TENSORS, K, Q

KEEP, BATCH, HEAD = Replicate(), Shard(0), Shard(1)
# One placement for each tensor of the schema.
WHOLE = [KEEP] * TENSORS
BY_BATCH = [BATCH] * 6 + [KEEP] + [BATCH] * 2 + [KEEP] * 2
BY_HEAD = [HEAD] * 6 + [Shard(0)] + [KEEP] * 4
# Every sequence may have its pages anywhere in the cache.
CACHED_BY_BATCH = [BATCH, KEEP, KEEP, *BY_BATCH[LAMBDA:]]


def _heads_may_part(args: tuple) -> bool:
    """Whether a mesh may cut the heads: not between those that share keys, nor a rule's numbers for each head."""
    q, k, rule = args[Q], args[K], args[TENSORS]
    return "[" not in rule and (q.shape[1] == k.shape[1] or k.shape[1] % k.mesh.size() == 0)


def _ways(args: tuple, by_batch: list = BY_BATCH) -> list[tuple[list, Any]]:
    """Placements of the tensors of a call, and of its statistics, which have one more axis in front."""
    return [(WHOLE, KEEP), (by_batch, Shard(1))] + [(BY_HEAD, Shard(2))] * _heads_may_part(args)


def _inputs(places: list, args: tuple) -> list:
    return [place if arg is not None else None for place, arg in zip(places, args)]


@register_sharding(OPS.attention.default)
def _(*args: Any) -> list:
    support = args[SHARED] >> 6 & 1
    numbers = [None] * (SHARED + 1 - TENSORS)
    return [
        ([places[Q], statistics, places[Q] if support else KEEP], _inputs(places, args) + numbers)
        for places, statistics in _ways(args)
    ]


@register_sharding(OPS.decode.default)
def _(*args: Any) -> list:
    support = args[SHARED + 2] >> 6 & 1
    numbers = [None] * (SHARED - TENSORS)

    def strategy(places: list, statistics: Any) -> tuple[list, list]:
        tables = [BATCH if places is CACHED_BY_BATCH else KEEP] * 2
        results = [places[Q], statistics, places[Q] if support else KEEP]
        return results, _inputs(places, args) + numbers + tables + [None]

    return [strategy(*way) for way in _ways(args, CACHED_BY_BATCH)]


@register_sharding(OPS.row_lengths.default)
def _(*args: Any) -> list:
    numbers = [None] * (SHARED - TENSORS)
    return [([places[Q]], _inputs(places, args) + numbers) for places, _ in _ways(args)]


@register_sharding(OPS.attention_backward.default)
def _(*args: Any) -> list:
    wants = args[-3:]
    numbers = [None] * (SHARED + 1 - TENSORS)

    def strategy(places: list, statistics: Any) -> tuple[list, list]:
        # Each sequence adds to the gradient of a sink.
        d_sink = Partial() if places is BY_BATCH else places[SINK]
        optional = [place if want else KEEP for place, want in zip((places[Q], places[Q], d_sink), wants)]
        upstream = _inputs([places[Q], statistics] * 2, args[SHARED + 1 : SHARED + 5])
        return [places[Q]] * 3 + optional, _inputs(places, args) + numbers + upstream + [None] * 3

    return [strategy(*way) for way in _ways(args)]
