"""Masks of transformers in the operator's form, whose elements are written only on demand.

transformers describes a mask by a function of (batch, head, query, key), composed of a few known ones. If all functions
are known and the keys of each row are one interval, the mask is stored as its parts. Others are dense, as for sdpa.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree
from transformers import masking_utils as hf

from isentrope._core.checks import kind
from isentrope._core.masks import Masks
from isentrope._core.values import check_bool, check_count, shown
from isentrope.hf.architectures import reads_mask_as_eager


class RowMask(Tensor):
    """Mask [batch, 1, queries, keys] stored as arguments of the operator instead of elements.

    Models pass it on like a dense mask; an operation that reads it gets the dense one. It is boolean, or additive in
    the type of the activations for models that expect the eager attention's masks.
    """

    masks: Masks
    _make_dense: Callable[[], Tensor]
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(
        cls, shape: tuple[int, ...], masks: Masks, make_dense: Callable[[], Tensor], device: Any,
        dtype: torch.dtype = torch.bool,
    ) -> RowMask:  # fmt: skip
        mask = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=device)
        mask.masks, mask._make_dense = masks, make_dense
        return mask

    def dense(self) -> Tensor:
        """Returns the mask as an ordinary tensor [batch, 1, queries, keys]."""
        return self._make_dense().expand(self.shape)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:  # type: ignore[override]
        if function.overloadpacket in _SUMS:
            _refuse_boolean(args)
        args, kwargs = _pytree.tree_map_only(cls, cls.dense, (args, kwargs or {}))
        return function(*args, **kwargs)

    def __repr__(self, *, tensor_contents: None = None) -> str:  # type: ignore[override]
        return f"RowMask({list(self.shape)}, {self.masks})"


_SUMS = (torch.ops.aten.add, torch.ops.aten.add_)


def _refuse_boolean(terms: tuple) -> None:
    """Raises ValueError for a sum with a boolean mask: True would become 1 and hide no key."""
    if any(isinstance(term, RowMask) and term.dtype == torch.bool for term in terms):
        raise ValueError(
            "[isentrope.hf] a mask must be additive where a model adds to it; got the boolean one of classes that support sdpa: "
            'load the model with attn_implementation="eager"'
        )


def row_mask(
    batch_size: int, q_length: int, kv_length: int, q_offset: int | Tensor = 0, kv_offset: int = 0,
    mask_function: Callable = hf.causal_mask_function, attention_mask: Tensor | None = None,
    allow_is_causal_skip: bool = True, allow_is_bidirectional_skip: bool = False, device: Any = "cpu",
    config: Any = None, dtype: torch.dtype = torch.float32, **rest: Any,
) -> Tensor | None:  # fmt: skip
    """Makes the mask of a model of transformers: [batch, 1, queries, keys], or None for one query that sees all keys.

    Longer calls get no None outside of compiled models. Modules that say `is_causal = False` may be given a causal mask
    (AIMv2, MetaCLIP 2), and causal ones a full mask (PaliGemma). Classes without support for sdpa get masks like the
    eager attention's: additive in `dtype`, and None only for a full mask that the caller allows to skip. In compiled models None stands for a causal or a full mask,
    which `is_causal` of the module tells apart. Compiled models that receive a mask from outside, also in steps of one
    token, get a dense one.
    """
    as_eager = reads_mask_as_eager(config)
    if as_eager:
        allow_is_causal_skip = False

    def dense(skip: bool = False) -> Tensor | None:
        if as_eager:
            return hf.eager_mask(
                batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, dtype,
                skip and allow_is_bidirectional_skip, device=device, **rest,
            )  # fmt: skip
        return hf.sdpa_mask(
            batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, device=device,
            allow_is_causal_skip=skip and allow_is_causal_skip,
            allow_is_bidirectional_skip=skip and allow_is_bidirectional_skip, **rest,
        )  # fmt: skip

    if torch.compiler.is_compiling():
        return dense(skip=True)
    check_bool("row_mask", "allow_is_causal_skip", allow_is_causal_skip)
    check_bool("row_mask", "allow_is_bidirectional_skip", allow_is_bidirectional_skip)
    _check_shape(batch_size, q_length, kv_length, kv_offset)
    _check_mask(mask_function, attention_mask, batch_size)
    device = _device(device)
    if q_length == 1 and not allow_is_causal_skip and not as_eager:
        return dense(skip=True)
    parts = _parts(mask_function)
    bounds = None if parts is None else bounds_of(attention_mask, kv_offset + kv_length)
    arguments = None if bounds is None else _arguments(parts, bounds, batch_size)
    if arguments is None:
        return dense(skip=True)
    if as_eager and allow_is_bidirectional_skip and not arguments:
        return None
    first = _offset(q_offset)
    last, end = first + q_length, kv_offset + kv_length
    skips = allow_is_causal_skip if arguments else allow_is_bidirectional_skip
    if q_length == 1 and skips and not bounds and arguments in ({}, {"causal": 1}) and last == end and kv_offset == 0:
        return None  # the last token sees all keys, whether or not its module is causal
    if "causal" in arguments and "key_end" not in arguments and last < end:
        # A static cache is not filled past the queries.
        arguments["key_end"] = torch.full((batch_size,), last, device=device)
    if "cu_seqlens_q" not in arguments:  # positions restart in each document
        arguments |= {"query_offset": first, "key_offset": kv_offset, "sequence_keys": end}
    return RowMask((batch_size, 1, q_length, kv_length), Masks(**arguments), dense, device, dtype if as_eager else torch.bool)


def _check_shape(batch_size: Any, q_length: Any, kv_length: Any, kv_offset: Any) -> None:
    counts = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length, "kv_offset": kv_offset}
    for name, count in counts.items():
        check_count("row_mask", name, count, 0)
    if batch_size * q_length * kv_length >= 1 << 63:
        got = f"{batch_size} x {q_length} x {kv_length}"
        raise ValueError(f"[row_mask] batch_size x q_length x kv_length must be a number of 64 bits; got {got}")


def _device(device: Any) -> torch.device:
    try:
        return torch.device(device)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"[row_mask] device must be one of torch's; got {shown(device)}") from error


def _check_mask(function: Any, shown_keys: Any, batch_size: int) -> None:
    if not callable(function):
        raise TypeError(f"[row_mask] mask_function must be a function; got {shown(function)}")
    if shown_keys is None:
        return
    dense = isinstance(shown_keys, Tensor) and shown_keys.layout is torch.strided and not shown_keys.is_meta
    if not dense or shown_keys.dim() != 2 or shown_keys.shape[0] != batch_size:
        raise ValueError(f"[row_mask] attention_mask must be a tensor [batch_size = {batch_size}, keys], or None; got {kind(shown_keys)}")


def _offset(q_offset: Any) -> int:
    """Returns the offset as an integer; a static cache counts its tokens in a tensor."""
    if isinstance(q_offset, Tensor) and q_offset.numel() == 1 and q_offset.dtype in (torch.int32, torch.int64):
        q_offset = q_offset.item()
    check_count("row_mask", "q_offset", q_offset, 0)
    return q_offset


def _closure_values(function: Callable) -> dict[str, Any]:
    return {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ())}


def _parts(function: Callable) -> dict[str, Any] | None:
    """Returns the parts of a mask function by transformers' names; None if one is not known."""
    read = _READ.get(getattr(function, "__code__", None))
    return None if read is None else read(_closure_values(function))


def _all_parts(functions: tuple[Callable, ...]) -> dict[str, Any] | None:
    merged: dict[str, Any] = {}
    for function in functions:
        parts = _parts(function)
        if parts is None or set(parts) & set(merged) - {"causal"}:
            return None
        merged |= parts
    return merged


def _causal_or_blocks(functions: tuple[Callable, ...]) -> dict[str, Any] | None:
    if len(functions) != 2 or _parts(functions[0]) != {"causal": True} or getattr(functions[1], "__code__", None) != _BLOCKS:
        return None
    return {"causal": True, "blocks": _closure_values(functions[1])["block_sequence_ids"]}


_NO_IDS = torch.zeros(1, dtype=torch.int64)
_BLOCKS = hf.blockwise_overlay(_NO_IDS).__code__
# The parts from a function's closure. Functions are recognised by their code, because they differ only in their closures.
_READ: dict[Any, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
    hf.causal_mask_function.__code__: lambda _: {"causal": True},
    hf.bidirectional_mask_function.__code__: lambda _: {},
    hf.sliding_window_overlay(1).__code__: lambda x: {"left": x["sliding_window"] - 1},
    hf.sliding_window_bidirectional_overlay(1).__code__: lambda x: dict.fromkeys(("left", "right"), x["sliding_window"]),
    hf.chunked_overlay(1, _NO_IDS).__code__: lambda x: {name: x[name] for name in ("chunk_size", "left_padding")},
    hf.packed_sequence_mask_function(_NO_IDS).__code__: lambda x: {"documents": x["packed_sequence_mask"]},
    hf.and_masks(hf.causal_mask_function).__code__: lambda x: _all_parts(x["mask_functions"]),
    hf.or_masks(hf.causal_mask_function).__code__: lambda x: _causal_or_blocks(x["mask_functions"]),
}


def bounds_of(attention_mask: Tensor | None, keys: int) -> dict[str, Tensor] | None:
    """Returns beginning and end of each sequence's keys without padding; None if there is padding between keys."""
    if attention_mask is None:
        return {}
    shown = attention_mask[:, :keys].bool()
    if shown.shape[1] == keys and bool(shown.all()):
        return {}
    begin, end = ends_of(shown)
    return {"key_begin": begin, "key_end": end} if torch.equal(end - begin, shown.sum(1)) else None


def ends_of(shown: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the first key shown of [batch, keys], and the end of the last; equal if there are none."""
    index = torch.arange(shown.shape[1], device=shown.device)
    end = torch.where(shown, index + 1, 0).amax(1)
    return torch.minimum(torch.where(shown, index, shown.shape[1]).amin(1), end), end


def _arguments(parts: dict[str, Any], bounds: dict[str, Tensor], batch: int) -> dict[str, Any] | None:
    """Returns the parts as arguments of `Masks`, without its place in the sequence; None if inexpressible."""
    # The cache counts positions, whatever the alignment of a call.
    arguments: dict[str, Any] = dict(bounds) | ({"causal": 1} if "causal" in parts else {})
    begin = bounds.get("key_begin")
    if "left" in parts:
        arguments |= {"window_left": parts["left"], "window_right": parts.get("right", -1)}
    if "chunk_size" in parts:
        padding = parts["left_padding"]
        if not (torch.equal(padding, begin) if begin is not None else not padding.any()):
            return None
        arguments["chunk_size"] = parts["chunk_size"]
    if "documents" in parts:
        # transformers' chunks continue across documents, the operator's restart in each.
        if bounds or batch != 1 or "chunk_size" in parts:
            return None
        starts = _starts(parts["documents"][0])
        arguments |= {"cu_seqlens_q": starts, "cu_seqlens_k": starts}
    if "blocks" in parts:
        prefix = _prefix(parts["blocks"], bounds)
        if prefix is None or "left" in parts or "chunk_size" in parts:
            return None
        if prefix.any():
            arguments["prefix_keys"] = prefix
    return arguments


def _starts(documents: Tensor) -> Tensor:
    changes = (documents[1:] != documents[:-1]).nonzero().flatten() + 1
    return torch.cat([changes.new_zeros(1), changes, changes.new_full((1,), documents.shape[0])])


def _prefix(blocks: Tensor, bounds: dict[str, Tensor]) -> Tensor | None:
    """Returns the length of each sequence's only block, at its beginning; None for other blocks."""
    index = torch.arange(blocks.shape[1], device=blocks.device)
    begin = bounds["key_begin"][:, None] if bounds else 0
    end = bounds["key_end"][:, None] if bounds else blocks.shape[1]
    blocked = (blocks >= 0) & (begin <= index) & (index < end)
    count = blocked.sum(1)
    begins_sequences = torch.equal(blocked, (begin <= index) & (index < begin + count[:, None]))
    last = blocks.amax(1, keepdim=True)
    return count if begins_sequences and bool((blocks == last)[blocked].all()) else None
