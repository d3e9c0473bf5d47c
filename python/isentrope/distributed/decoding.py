"""Decode steps over a cache that is split over ranks, and the merge of their states."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from isentrope._core.attend import any_gradient, attend
from isentrope._core.call import call_of
from isentrope._core.checks import CHECKS, check_dense, check_sinks
from isentrope._core.observers import refuse_listeners
from isentrope._core.options import PartOptions, check_names
from isentrope._core.values import checked_integer
from isentrope.distributed.exchange import Group, exchange, group_name, resolved, tag_of
from isentrope.distributed.rows import wide
from isentrope.states import AttentionState, require_state
from isentrope.states import merge as merge_two
from isentrope.statistics import BITS, StatisticNames, Statistics, statistic_names, wanted_bits


def merge(state: AttentionState, group: Group = None) -> AttentionState:
    """Returns the state over the keys of all ranks, merged from the state of each; the same bits on every rank.

    `output` is [batch, heads, queries, value_dim]; `statistics` must have lse, and the same names on every rank. This
    takes one exchange of value_dim numbers for each row and one for each statistic. It is differentiable: the gradient
    of a state is the sum of the ranks' gradients of the merged one. Raises as `isentrope.merge` does. Raises
    RuntimeError within the group's time limit if a rank does not make the call, or makes it with another shape or other
    names.
    """
    return _merged(state, group)


def _merged(state: AttentionState, group: Group, *same: Any) -> AttentionState:
    """same: further values that no rank may have otherwise."""
    require_state("state", state)
    name = group_name(group)
    ranks = resolved(name).size()
    output, statistics = state
    by_name = {key: x for key, x in statistics._asdict().items() if x is not None}
    if "lse" not in by_name:
        raise ValueError("[merge] state must have statistics with lse; got none")
    # float64 represents all numbers of keys and all float32 numbers exactly.
    packed = torch.cat([output.double(), torch.stack([x.double() for x in by_name.values()], -1)], -1)
    tag = tag_of(repr((tuple(output.shape), output.dtype, tuple(by_name), *same)))
    sizes = [packed.numel()] * ranks
    received = exchange(packed.reshape(-1).repeat(ranks), sizes, sizes, tag, "as states are merged", name)
    received = received.view(ranks, *packed.shape)
    merged: Any = None
    for part in received.unbind(0):
        columns = dict(zip(by_name, part[..., output.shape[3] :].unbind(-1)))
        typed = {key: column.to(by_name[key].dtype) for key, column in columns.items()}
        here = AttentionState(part[..., : output.shape[3]].to(wide(output.dtype)), Statistics(**typed))
        merged = here if merged is None else merge_two(merged, here)
    return AttentionState(merged.output.to(output.dtype), merged.statistics)


def decode(
    q: Tensor, k: Tensor, v: Tensor, *,
    key_offset: int, sequence_keys: int, group: Group = None, return_stats: StatisticNames = False,
    **options: Unpack[PartOptions],
) -> Any:  # fmt: skip
    """Computes attention of the last few queries of each sequence over a cache that is split over the ranks.

        q: [batch, heads, queries, dim], the same on every rank; the queries are the last of the sequence.
        k, v: [batch, kv_heads, keys, dim | value_dim]: keys key_offset, key_offset + 1, ... of the sequence, any number
            of them, also none; together the ranks have all keys.
        sequence_keys: the number of keys of the whole sequence, including those of the queries.

    Each rank attends to its part, and one exchange merges the results, which have the same bits on every rank. n is
    that of the sequence. Everything else, errors included, is as in `isentrope.attention`. Not differentiable: inputs
    that require gradients are a ValueError, unless gradients are disabled.

    Options must be the same on every rank, in positions of the whole sequence. Raises RuntimeError within the group's time
    limit if a rank does not make the call, or makes it with other options; the values of tensors are not compared.
    """
    check_names("distributed.decode", options)
    refuse_listeners("decode")
    for name, value in (("key_offset", key_offset), ("sequence_keys", sequence_keys)):
        checked_integer("decode", name, value)
    # call_of() refuses a q without queries.
    queries = q.shape[2] if isinstance(q, Tensor) and not q.is_nested and q.dim() == 4 else 0
    sinks: Any = options.pop("sinks", None)
    if any_gradient((q, k, v, sinks)):
        raise ValueError(
            "[decode] q, k, v and sinks must not require gradients; got one that does: use torch.no_grad() "
            "or isentrope.distributed.attention"
        )
    names = statistic_names(return_stats)
    needed = wanted_bits(names or ())  # merging computes what gradients need
    with torch.no_grad():
        call = call_of(  # type: ignore[misc]
            q, k, v, causal="top_left", query_offset=sequence_keys - queries, key_offset=key_offset,
            sequence_keys=sequence_keys, **options,
        )  # fmt: skip
        check_dense(q=call.q, k=call.k, v=call.v)
        if sinks is not None:
            sinks = CHECKS["sinks"]("sinks", sinks, call.q, call.k)
            check_sinks(sinks, call.q)
        output, statistics = attend(call, [name for name, bit in BITS.items() if needed & bit])
        # Numbers, and which of the tensors are given. Each rank has keys of its own.
        same = [isinstance(x, Tensor) or x for name, x in call._asdict().items() if name != "key_offset"]
        merged = _merged(AttentionState(output, statistics), group, same, sinks is not None)
        output, lse = merged.output, merged.statistics.lse
        if sinks is not None:
            output = (output * torch.sigmoid(lse - sinks[:, None])[..., None]).to(output.dtype)
    if names is None:
        return output
    return output, Statistics(**{name: getattr(merged.statistics, name) for name in names})
