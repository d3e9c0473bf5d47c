"""DTensors sharded by batch or by head stay as they are."""

from __future__ import annotations

from typing import Any

from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from isentrope._core.call import SHARED, TENSORS, Call
from isentrope._core.library import AXES, CHECKED, OPS, SUPPORT

KEEP, BATCH = Replicate(), Shard(0)
_AXES = dict.fromkeys("qkv", ["batch", "heads"]) | AXES


def _cut(axis: str) -> list:
    """One placement for each tensor of the schema: sharded along the axis, where it has that."""
    its = (_AXES[name] for name in Call._fields[:TENSORS])
    return [Shard(axes.index(axis)) if axis in axes else KEEP for axes in its]


WHOLE, BY_BATCH, BY_HEAD = [KEEP] * TENSORS, _cut("batch"), _cut("heads")
# Every sequence may have its pages anywhere in the cache.
CACHED_BY_BATCH = [BATCH, KEEP, KEEP, *BY_BATCH[3:]]


def _heads_may_part(args: tuple) -> bool:
    """Whether a mesh may cut the heads: not between those that share keys, nor a rule's numbers for each head."""
    call = Call(*args[:SHARED])
    own_keys = call.q.shape[1] == call.k.shape[1]
    return CHECKED.rule_heads(call.rule) == 1 and (own_keys or call.k.shape[1] % call.k.mesh.size() == 0)


def _ways(args: tuple, by_batch: list = BY_BATCH) -> list[tuple[list, Any]]:
    """Placements of the tensors of a call, and of its statistics, which have one more axis in front.

    Dropout counts batches and heads from the call's first: a part of them would have another's mask.
    """
    if Call(*args[:SHARED]).dropout_p > 0:
        return [(WHOLE, KEEP)]
    return [(WHOLE, KEEP), (by_batch, Shard(1))] + [(BY_HEAD, Shard(2))] * _heads_may_part(args)


def _inputs(places: list, args: tuple) -> list:
    return [place if arg is not None else None for place, arg in zip(places, args)]


@register_sharding(OPS.attention.default)
def _(*args: Any) -> list:
    support = args[SHARED] & SUPPORT
    numbers = [None] * (SHARED + 1 - TENSORS)
    return [
        ([places[0], statistics, places[0] if support else KEEP], _inputs(places, args) + numbers)
        for places, statistics in _ways(args)
    ]


@register_sharding(OPS.decode.default)
def _(*args: Any) -> list:
    support = args[SHARED + 2] & SUPPORT
    numbers = [None] * (SHARED - TENSORS)

    def strategy(places: list, statistics: Any) -> tuple[list, list]:
        tables = [BATCH if places is CACHED_BY_BATCH else KEEP] * 2
        results = [places[0], statistics, places[0] if support else KEEP]
        return results, _inputs(places, args) + numbers + tables + [None]

    return [strategy(*way) for way in _ways(args, CACHED_BY_BATCH)]


@register_sharding(OPS.row_lengths.default)
def _(*args: Any) -> list:
    numbers = [None] * (SHARED - TENSORS)
    return [([places[0]], _inputs(places, args) + numbers) for places, _ in _ways(args)]


@register_sharding(OPS.attention_backward.default)
def _(*args: Any) -> list:
    wants = args[SHARED + 5 : SHARED + 8]
    numbers = [None] * (SHARED + 1 - TENSORS)

    def strategy(places: list, statistics: Any) -> tuple[list, list]:
        # Each sequence adds to the gradients of the sinks.
        d_sinks = Partial() if places is BY_BATCH else Call(*places).sinks
        optional = [place if want else KEEP for place, want in zip((places[0], places[0], d_sinks), wants)]
        upstream = _inputs([places[0], statistics] * 2, args[SHARED + 1 : SHARED + 5])
        return [places[0]] * 3 + optional, _inputs(places, args) + numbers + upstream + [None] * 4

    return [strategy(*way) for way in _ways(args)]
