"""Options of each function, for type checkers and for errors about unknown names."""

from __future__ import annotations

from typing import Any, TypedDict

from torch import Tensor

from isentrope.rules import Rule


class SequenceMasks(TypedDict, total=False):
    """Masks of a row of a sequence; `attention` documents them."""

    causal: bool | str
    window_size: tuple[int, int]
    dilation: int
    chunk_size: int
    prefix_keys: int | Tensor | None


class Padding(TypedDict, total=False):
    key_begin: Tensor | None
    key_end: Tensor | None


class MaskOptions(SequenceMasks, Padding, total=False):
    attn_mask: Tensor | None
    query_offset: int
    key_offset: int
    sequence_keys: int


class Dropout(TypedDict, total=False):
    """Dropout of weights; `attention` documents it."""

    dropout_p: float
    dropout_seed: int | Tensor | None


class Logits(TypedDict, total=False):
    soft_cap: float
    sinks: Tensor | None


class RuleOptions(Logits, total=False):
    rule: Rule
    scale: float | None


class RowOptions(MaskOptions, Dropout, Logits, total=False):
    bias: Tensor | None


class DenseOptions(MaskOptions, RuleOptions, total=False):
    """Options that `attention` and statistics of keys share."""

    bias: Tensor | None
    is_causal: bool
    enable_gqa: bool


class Options(DenseOptions, Dropout, total=False):
    """Options of `attention`."""


class KeyOptions(DenseOptions, total=False):
    """Options for statistics of keys: those that shape the weights."""

    cu_seqlens_q: Tensor | None
    cu_seqlens_k: Tensor | None


class SequenceOptions(SequenceMasks, RuleOptions, total=False):
    """Options for packed documents and paged caches."""


class DocumentOptions(SequenceOptions, Dropout, total=False):
    """Options for packed documents."""


class PackedOptions(DocumentOptions, total=False):
    """Options for packed queries, also over a paged cache."""

    attn_mask: Tensor | None
    bias: Tensor | None


class PartOptions(SequenceOptions, Padding, total=False):
    """Options for a sequence that is split over ranks."""


_KINDS: dict[str, Any] = {
    "attention": Options, "attention_rows": RowOptions, "varlen_attention": PackedOptions, "decode": SequenceOptions,
    "received": KeyOptions, "weights_at": KeyOptions, "row_lengths": MaskOptions,
    "distributed.attention": PartOptions, "distributed.decode": PartOptions,
}  # fmt: skip
KNOWN = {function: frozenset(kind.__annotations__) for function, kind in _KINDS.items()}
KNOWN["distributed.decode"] -= {"causal"}


def check_names(function: str, options: Any) -> dict[str, Any]:
    """Returns the options. Raises TypeError for one that the function does not have."""
    for name in options:
        if name not in KNOWN[function]:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    return options
