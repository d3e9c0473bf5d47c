"""Attention over a sequence that is split over ranks."""

from __future__ import annotations

from operator import index
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.distributed.tensor import DTensor
from typing_extensions import Unpack

from isentrope._core import observers
from isentrope._core.call import IN_TENSORS, Call, call_of
from isentrope._core.checks import CHECKS, check_dense, check_sinks
from isentrope._core.derivatives import transformed
from isentrope._core.library import AXES, DEFAULTS, refuse_arguments, refuse_unknown
from isentrope._core.masks import Masks
from isentrope._core.options import PartOptions, check_names
from isentrope._core.values import check_choice
from isentrope.distributed.agreement import agreed
from isentrope.distributed.dtensor import on_local_tensors
from isentrope.distributed.exchange import Group, group_name
from isentrope.distributed.layout import check_layout, check_length
from isentrope.distributed.ring import ring_attention
from isentrope.distributed.ulysses import attention_by_heads
from isentrope.rules import rule_text
from isentrope.statistics import StatisticNames, statistic_names, unpack, wanted_bits, with_needs

METHODS = ("ring", "all_gather", "all_to_all")
# Arguments passed to the operators besides masks. A new one must be added here or to the unsupported ones.
_TAKEN = {*Masks._fields, "sinks", "rule", "soft_cap", *IN_TENSORS}
_NOT_TAKEN = {"lambda_", "attn_mask", "bias", "dropout_p", "dropout_seed"}
_DOCUMENTS = ("cu_seqlens_q", "cu_seqlens_k")  # queries and keys have the same documents here
refuse_unknown("isentrope.distributed", "argument", DEFAULTS, _TAKEN | _NOT_TAKEN)


def attention(
    q: Tensor, k: Tensor, v: Tensor, *,
    group: Group = None, method: str = "ring", layout: str = "contiguous", sequence_length: int | None = None,
    documents: Tensor | None = None, return_stats: StatisticNames = False, **options: Unpack[PartOptions],
) -> Any:  # fmt: skip
    """Computes `isentrope.attention` of a sequence that is split over the ranks; results are those of this rank's rows.

        q: [batch, heads, rows, dim], k: [batch, kv_heads, rows, dim], v: [batch, kv_heads, rows, value_dim]: the rows
            that `shard` gives this rank.
        group: the ranks that hold the sequence: a process group, or one dimension of a DeviceMesh; None: all ranks.
        method: "ring" (Liu et al. 2023), "all_gather" or "all_to_all" (Ulysses, Jacobs et al. 2023);
            docs/distributed.md says when to use which.
        layout: "contiguous", or "zigzag", which balances the work under a causal mask.
        sequence_length: rows of the whole sequence; None: every rank has as many as this one.
        key_begin, key_end, prefix_keys: integers [batch], of the whole sequence; the same on every rank. The CPU decides
            from them and from `documents` what to send: keep them on the CPU, so that nothing waits for a device.
        documents: integers [documents + 1], the beginnings of packed documents: 0, ..., sequence_length; the same on
            every rank. n is that of the document. Not together with key_begin and key_end.
        q, k, v may be DTensors, sharded by Shard(2) over one dimension of their mesh, which is the group, and by batch
            or heads over others; results are placed in the same way. With layout="zigzag" their rows are in its order.
        Everything else is as in `isentrope.attention`; n, position and total are those of the whole sequence.

    Returns what `isentrope.attention` returns, differentiable with respect to q, k, v and sinks. The gradient of
    sinks, which every rank has, is that of this rank's rows: sum it over the ranks, as for a model's weights. That of
    sinks that are a DTensor is whole.

    Every rank must make the call with the same arguments, and run the backward pass if gradients are needed. Raises
    ValueError on every rank if the arguments differ, and RuntimeError within the group's time limit if a rank is missing.
    """
    check_names("distributed.attention", options)
    observers.refuse_listeners("attention")
    if isinstance(q, DTensor):
        if group is not None or sequence_length is not None:
            raise ValueError("[isentrope.distributed] group and sequence_length must be None with DTensors; got one")
        way = {"method": method, "layout": layout, "return_stats": return_stats}
        return on_local_tensors(attention, q, k, v, options | {"documents": documents}, way)
    check_choice("isentrope.distributed", "method", method, METHODS)
    check_layout(layout)
    check_length(sequence_length)
    call, masks = _checked(q, k, v, documents, options)
    q, k, v, sinks = call.q, call.k, call.v, call.sinks
    names = statistic_names(return_stats)
    wanted = (0 if names is None else wanted_bits(names)) | observers.wanted(eager=False)
    name = group_name(group)
    # Ranks compare numbers, so a compiled graph of dynamic lengths becomes one for each length.
    rows, keys, *shape = map(index, (q.shape[2], k.shape[2], *q.shape[:2], k.shape[1], q.shape[3], v.shape[3]))
    list_names = tuple(name for name, x in {"sinks": sinks, **masks.lists()}.items() if x is not None)
    soft_cap = float(options.get("soft_cap", 0.0))
    text = agreed(
        name, q.device, rows, keys, sequence_length, method, layout, str(q.dtype), *shape, call.rule,
        masks.numbers() | {"causal": masks.causal > 0}, soft_cap, wanted, list_names,
    )  # fmt: skip
    if method == "all_to_all":
        output, statistics = attention_by_heads(q, k, v, sinks, masks, text, name, names)
    else:
        output, shared, support, _ = ring_attention(q, k, v, sinks, *masks.lists().values(), text, name)
        observers.hear(False, call, with_needs(wanted), shared, support)
        statistics = None if names is None else unpack(names, with_needs(wanted), shared, support)
    return output if names is None else (output, statistics)


def _checked(q: Tensor, k: Tensor, v: Tensor, documents: Tensor | None, options: Any) -> tuple[Call, Masks]:
    """Returns the call of this rank, and its masks in positions of the whole sequence."""
    options = options | {"rule": rule_text(options.get("rule", "standard"), options.get("scale"))}
    options.pop("scale", None)
    lists = {name: options.pop(name, None) for name in Masks._fields if AXES[name]}
    call = call_of(q, k, v, **options)
    if forward_ad._current_level >= 0 or (not torch.compiler.is_compiling() and transformed()):
        raise NotImplementedError(
            "[isentrope.distributed] forward-mode derivatives and torch.func transforms are not implemented for a split sequence; "
            "use reverse mode, or isentrope.attention on one rank"
        )
    check_dense(q=call.q, k=call.k, v=call.v)
    check_sinks(call.sinks, call.q)
    return call, Masks.of(call)._replace(causal=min(call.causal, 1), **_lists(lists, documents, call.q))


def _lists(lists: dict[str, Any], documents: Tensor | None, q: Tensor) -> dict[str, Tensor]:
    """Returns the lists of the masks, checked and on the CPU."""
    if documents is not None:
        if lists["key_begin"] is not None or lists["key_end"] is not None:
            raise ValueError(
                "[isentrope.distributed] documents must be given without key_begin and key_end, which describe documents "
                "too; got both"
            )
        lists = lists | dict.fromkeys(_DOCUMENTS, documents)
    like = torch.empty(()).expand(q.shape[:1])
    checked: dict[str, Any] = {}
    try:
        for name, x in lists.items():
            if x is not None:
                listed = x.cpu() if isinstance(x, Tensor) and not x.is_meta else x
                label = "documents" if name in _DOCUMENTS else name
                checked[name] = CHECKS[name](label, listed, like, like)
                if checked[name].dim() != 1:
                    raise ValueError(f"[attention] {label} must have 1 dimension; got {checked[name].dim()}")
    except Exception:
        refuse_arguments(lists.items())
        raise
    return checked
