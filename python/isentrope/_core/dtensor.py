"""Sharding rules of DTensors: results keep shards by batch or by head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from isentrope._core.call import TENSORS, Call
from isentrope._core.library import CHECKED, OPS, SUPPORT, TENSOR_AXES

KEEP = Replicate()
Places = dict[str, Any]
"""By name, of every tensor that the schemas have."""
_TENSORS = (
    *Call._fields[:TENSORS], "output", "t_output", "d_output", "statistics", "t_statistics", "d_statistics", "block_table", "seqused_k",
    "cu_seq_q", "t_q", "t_k", "t_v", "t_bias", "t_lambda", "t_sinks",
)  # fmt: skip


def _placements_along(axis: str) -> Places:
    """Returns placements sharded along the axis, for tensors that have it."""
    return {name: Shard(TENSOR_AXES[name].index(axis)) if axis in TENSOR_AXES[name] else KEEP for name in _TENSORS}


WHOLE, BY_BATCH, BY_HEAD = (_placements_along(axis) for axis in ("", "batch", "heads"))
# The pages of a sequence may be anywhere in the cache, so it is replicated.
CACHED_BY_BATCH = BY_BATCH | {"k": KEEP, "v": KEEP}


def _ways(arguments: dict[str, Any], by_batch: Places) -> list[Places]:
    """Returns the possible placements. Dropout allows no shards, because its mask counts all batches and heads."""
    if arguments["dropout_p"] > 0:
        return [WHOLE]
    if arguments.get("cu_seq_q") is not None:  # packed queries are one batch
        by_batch = WHOLE
    q, k = arguments["q"], arguments["k"]
    has_keys = q.shape[1] == k.shape[1] or k.shape[1] % k.mesh.size() == 0  # of its own in every shard
    by_head = has_keys and CHECKED.rule_heads(arguments["rule"]) == 1
    return [WHOLE, by_batch] + [BY_HEAD] * by_head


def _shard(operator: Any, results: Callable[[dict[str, Any], Places], list], by_batch: Places = BY_BATCH) -> None:
    """Registers the strategies of an operator. results: its results' placements, from the arguments' by name."""
    names = [argument.name for argument in operator._schema.arguments]

    @register_sharding(operator)
    def _(*args: Any) -> list:
        arguments = dict(zip(names, args, strict=True))
        return [
            (results(arguments, places), [None if x is None else places.get(name) for name, x in arguments.items()])
            for places in _ways(arguments, by_batch)
        ]


def _result_placements(arguments: dict[str, Any], places: Places) -> list:
    return [places["q"], places["statistics"], places["q"] if arguments["wanted"] & SUPPORT else KEEP]


def _gradients(arguments: dict[str, Any], places: Places) -> list:
    # The gradient of the sinks sums over sequences.
    others = {"bias": places["q"], "lambda": places["q"], "sinks": Partial() if places is BY_BATCH else places["sinks"]}
    optional = [place if arguments[f"wants_{name}"] else KEEP for name, place in others.items()]
    return [places[name] for name in "qkv"] + optional


_shard(OPS.attention.default, _result_placements)
_shard(OPS.decode.default, _result_placements, CACHED_BY_BATCH)
_shard(OPS.row_lengths.default, lambda _, places: [places["q"]])
_shard(OPS.attention_backward.default, _gradients)
_shard(OPS.attention_tangent.default, lambda _, places: [places["q"], places["statistics"]])
_shard(OPS.attention_second_order.default, _gradients)
