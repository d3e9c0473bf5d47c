"""Positions of rows in their sequence, for rules that need more than the number of keys.

The mask alone separates padding from keys. position_ids also tell where documents of a packed row begin, and how many
keys the cache of a sliding window has dropped.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from isentrope._core.observers import listeners
from isentrope.functions import attention
from isentrope.hf.masks import ends_of
from isentrope.statistics import Statistics


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, positions: Tensor | None,
    window: int | None, **options: Any,
) -> Any:  # fmt: skip
    """`attention` with the positions of its rows.

    positions: int64 [batch or 1, queries] or None. window: None if the layer's cache keeps all keys; if it drops those out
    of reach, how many keys a row sees, or 0 where the layer does not say. Raises ValueError if it may have dropped keys and
    positions are missing or count padding, or if padding is between keys. Raises RuntimeError for packed documents in a
    compiled model, because its graph cannot depend on where they begin.
    """
    queries, keys = q.shape[2], k.shape[2]
    if positions is not None and positions.dim() != 2:  # positions within images, not within a sequence
        positions = None
    if window is not None and queries != keys:
        if positions is None:
            raise ValueError(
                "[isentrope.hf] position_ids must reach a layer with a sliding window and a cache under a rule of the "
                "position; got an architecture that does not pass them: use a rule with length=visible"
            )
        if mask is None:
            mask, options["causal"] = q.new_ones((1, 1, queries, keys), dtype=torch.bool), False
        shown = mask.flatten(1, 2).any(1)
        _refuse_padding(shown, positions, window)
        options |= _end_of_sequence(positions.expand(q.shape[0], -1), shown)
    elif mask is not None:
        mask = mask.expand(q.shape[0], -1, queries, keys)
        if positions is not None and queries == keys:
            # A document may begin with a key at position 0 after one that is no padding.
            begins = (positions[:, 1:] == 0) & mask.flatten(1, 2).any(1)[:, :-1]
            if torch.compiler.is_compiling():
                torch._assert_async(~begins.any(), "[isentrope.hf] packed documents need a model that is not compiled")
            elif begins.any():
                return _each_document(q, k, v, mask, bias, _documents(mask, begins), options)
        options |= _without_padding(mask, queries)
    return attention(q, k, v, attn_mask=mask, bias=bias, **options)


def _without_padding(mask: Tensor, queries: int) -> dict[str, Any]:
    """Returns options for sequences from the first to the last visible key, with the last queries at the end."""
    begin, end = ends_of(mask.flatten(1, 2).any(1))
    offset = max(int(end.max()) - queries, 0) if end.numel() else 0
    return {"key_begin": begin, "key_end": end, "query_offset": offset, "sequence_keys": mask.shape[-1]}


def _refuse_padding(shown: Tensor, positions: Tensor, window: int) -> None:
    """Refuses padding between keys, [batch, keys], which position_ids do not count, so they do not tell the place of a
    cache's keys. Refuses position_ids that count padding: where some is in the window, so are all keys after it."""
    begin, end = ends_of(shown)
    where = "in a layer with a sliding window and a cache under a rule of the position"
    _refuse(
        (end - begin != shown.sum(1)).any(),
        f"[isentrope.hf] padding must be at either end of a sequence {where}; got padding between keys: "
        "use a rule with length=visible",
    )
    padded = (begin > 0) & (end - begin < window + positions.shape[1] - 1)
    counted = padded & (positions[:, -1] + 1 != end - begin)
    if len(positions) < len(shown):
        counted |= begin != begin[0]
    _refuse(
        counted.any(),
        f"[isentrope.hf] position_ids must not count padding {where}; got positions that do: pass them for each sequence",
    )


def _refuse(wrong: Tensor, message: str) -> None:
    """Raises ValueError, or RuntimeError in a compiled model, whose graph cannot depend on a number."""
    if torch.compiler.is_compiling():
        torch._assert_async(~wrong, message)
    elif wrong:
        raise ValueError(message)


def _end_of_sequence(positions: Tensor, shown: Tensor) -> dict[str, Any]:
    """Returns options for visible keys, [batch, keys], at the end of the longest sequence. Shorter ones have padding before
    them. A static cache has its slots from the first step on; those behind the visible keys are empty."""
    last, (begin, end) = positions[:, -1], ends_of(shown)
    filled, total = int(end.max()), int(last.max()) + 1
    padding = int(torch.where(end > begin, begin, filled).min())
    total = max(total, min(filled, total + padding))  # position_ids do not count the padding that all have
    return {
        "key_begin": total - 1 - last, "key_end": torch.full_like(last, total), "query_offset": total - positions.shape[1],
        "key_offset": max(total - filled, 0), "sequence_keys": total - filled + shown.shape[1],
    }  # fmt: skip


def _documents(mask: Tensor, begins: Tensor) -> list[list[int]]:
    """Returns the boundaries of documents for each row of the batch; those that see each other count as one."""
    boundaries = []
    for row, starts in zip(mask, begins):
        cuts = [start + 1 for start in starts.nonzero().flatten().tolist()]
        apart = [cut for cut in cuts if not (row[:, cut:, :cut].any() or row[:, :cut, cut:].any())]
        boundaries.append([0, *apart, mask.shape[-1]])
    return boundaries


def _each_document(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor | None, cuts: list[list[int]], options: dict[str, Any]
) -> Any:
    if not all(listener.documents for listener in listeners.members):
        raise ValueError(
            "[isentrope.hf] packed documents under a rule of the position are a call each, of which Monitor would read the first: "
            "read them by isentrope.hf.record, or watch a step without them"
        )
    if bias is not None:
        bias = bias.expand(q.shape[0], -1, q.shape[2], k.shape[2])

    def document(row: int, begin: int, end: int) -> Any:
        part = (slice(row, row + 1), slice(None), slice(begin, end))
        seen, added = (None if x is None else x[part + (slice(begin, end),)] for x in (mask, bias))
        place = _without_padding(seen, end - begin)
        return attention(q[part], k[part], v[part], attn_mask=seen, bias=added, **options, **place)

    rows = ([document(row, *ends) for ends in pairwise(of_row)] for row, of_row in enumerate(cuts))
    return _concatenated([_concatenated(row, 2) for row in rows], 0)


def _concatenated(results: list, axis: int) -> Any:
    if isinstance(results[0], Tensor):
        return torch.cat(results, axis)
    outputs, statistics = zip(*results)
    columns = (None if column[0] is None else torch.cat(column, axis) for column in zip(*statistics))
    return torch.cat(outputs, axis), Statistics(*columns)
