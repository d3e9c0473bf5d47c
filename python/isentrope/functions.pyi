"""The types of functions.py, whose results depend on whether statistics are asked for."""

from collections.abc import Sequence
from typing import Literal, TypedDict, overload

from torch import Tensor
from typing_extensions import Unpack

from isentrope.rules import ScaleRule
from isentrope.statistics import Statistics

Rule = str | ScaleRule
_Asked = Literal[True] | Sequence[str]
_WithStatistics = tuple[Tensor, Statistics]

class _Masks(TypedDict, total=False):
    causal: bool | str
    window_size: tuple[int, int]
    attn_mask: Tensor | None
    key_begin: Tensor | None
    key_end: Tensor | None
    query_offset: int
    key_offset: int
    sequence_keys: int

class _RowOptions(_Masks, total=False):
    bias: Tensor | None
    soft_cap: float
    sinks: Tensor | None

class _Options(_RowOptions, total=False):
    rule: Rule
    scale: float | None

class _SequenceOptions(TypedDict, total=False):
    rule: Rule
    scale: float | None
    causal: bool | str
    window_size: tuple[int, int]
    soft_cap: float
    sinks: Tensor | None

@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, *, return_stats: Literal[False] = False, **options: Unpack[_Options]
) -> Tensor: ...
@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, *, return_stats: _Asked, **options: Unpack[_Options]
) -> _WithStatistics: ...
@overload
def attention_rows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lambda_: Tensor,
    *,
    return_stats: Literal[False] = False,
    **options: Unpack[_RowOptions],
) -> Tensor: ...
@overload
def attention_rows(
    q: Tensor, k: Tensor, v: Tensor, lambda_: Tensor, *, return_stats: _Asked, **options: Unpack[_RowOptions]
) -> _WithStatistics: ...
@overload
def varlen_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int | None = None,
    max_k: int | None = None,
    *,
    return_stats: Literal[False] = False,
    **options: Unpack[_SequenceOptions],
) -> Tensor: ...
@overload
def varlen_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int | None = None,
    max_k: int | None = None,
    *,
    return_stats: _Asked,
    **options: Unpack[_SequenceOptions],
) -> _WithStatistics: ...
@overload
def decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seqused_k: Tensor,
    *,
    return_stats: Literal[False] = False,
    **options: Unpack[_SequenceOptions],
) -> Tensor: ...
@overload
def decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seqused_k: Tensor,
    *,
    return_stats: _Asked,
    **options: Unpack[_SequenceOptions],
) -> _WithStatistics: ...
def row_lengths(q: Tensor, k: Tensor, **masks: Unpack[_Masks]) -> Tensor: ...
