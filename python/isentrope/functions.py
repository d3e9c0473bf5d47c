"""The functions that compute attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor
from typing_extensions import Unpack

from isentrope._core.attend import any_gradient, any_tangent, attend
from isentrope._core.cache import Cache
from isentrope._core.call import call_of, without_sdpa_names
from isentrope._core.checks import CHECKS, kind
from isentrope._core.layouts import is_jagged, jagged_attention
from isentrope._core.library import CHECKED
from isentrope._core.options import KNOWN, MaskOptions, Options, PackedOptions, RowOptions, SequenceOptions, check_names
from isentrope._core.plain import OPTIONS as PLAIN_OPTIONS
from isentrope._core.plain import attend_plainly
from isentrope._core.values import is_integer
from isentrope.statistics import StatisticNames, Statistics, converted, statistic_names, unpack, wanted_bits

_No = Literal[False]
_Wanted = Literal[True] | Sequence[str]
_Pair = tuple[Tensor, Statistics]


@overload
def attention(q: Tensor, k: Tensor, v: Tensor, *, return_stats: _No = False, **options: Unpack[Options]) -> Tensor: ...


@overload
def attention(q: Tensor, k: Tensor, v: Tensor, *, return_stats: _Wanted, **options: Unpack[Options]) -> _Pair: ...


def attention(q: Tensor, k: Tensor, v: Tensor, *, return_stats: StatisticNames = False, **options: Any) -> Any:
    """Computes attention whose softmax scale may depend on the number of keys that each row sees.

        z = soft_cap tanh(lambda q.k / soft_cap) + bias       p = softmax(z, sinks)       output = p v

    Shapes and types:
        q: [batch, heads, queries, dim], k: [batch, kv_heads, keys, dim], v: [batch, kv_heads, keys, value_dim],
            all float32, bfloat16 or float16, with any strides, or float64 on the CPU, which is slow and for tests.
            On the CPU a float32 q also reads bfloat16 or float16 k and v.
            kv_heads divides heads: query head h reads key head h // (heads / kv_heads). Or all jagged
            (`layout=torch.jagged`), with the options of `varlen_attention`: the results are jagged too.
        rule: lambda(n, dim), a `ScaleRule` or its text. n counts the keys that the masks let a row see.
        scale: replaces the rule's 1/sqrt(dim), as in `scaled_dot_product_attention`.
        causal: False, "top_left", or True = "bottom_right": the last query sees the last key.
        window_size: (left, right), keys position - left ... position + right; -1: no limit. Query i is at position
            i + keys - queries, as in FlashAttention, causal or not; with causal="top_left" at i.
        dilation: a row sees only those of these keys whose distance from its position is a multiple of it
            (Longformer, LongNet); 0 or 1: all.
        chunk_size: a row sees the keys of its own chunk of this many positions, counted from the first key that is not
            padding (Llama 4); 0: no chunks.
        prefix_keys: an integer, or integers [batch]; the number of first keys of each sequence, after padding, that all
            its rows see, causal or not (PaliGemma, GLM). Not with chunk_size, dilation or a window to the left.
        attn_mask: bool, broadcastable to [batch, heads, queries, keys]; True lets a row see a key, False hides it from
            the softmax and from n. Floating point: a bias, as in `scaled_dot_product_attention`.
        bias: floating point, broadcastable to the same shape; -inf hides a key from the softmax, but not from n.
        is_causal, enable_gqa: as in `scaled_dot_product_attention`: causal="top_left", and whether heads of q may share
            those of k and v, which they may unless it is False.
        soft_cap: finite and at least 0 (Gemma 2); 0: none.
        sinks: [heads], logits that join the softmax without a value (gpt-oss); statistics are those of the real keys.
        dropout_p: share of weights to drop, 0 <= dropout_p < 1; the rest are multiplied by 1 / (1 - dropout_p).
            Statistics are those of the weights before dropout.
        dropout_seed: a 64-bit integer, or an int64 tensor without dimensions, that selects the weights to drop
            (docs/adr/0013). None: drawn from torch's generator of the device, which activation checkpointing repeats.
        key_begin, key_end: integers [batch]; the keys that are not padding are key_begin ... key_end - 1.
        query_offset, key_offset, sequence_keys: the place of queries and keys in the sequence that they are part of;
            sequence_keys = 0: the sequence ends with them. With sequence_keys, query i is at position i + query_offset
            under every mask, and under causal=True it must lie within the sequence.
        return_stats: False, True, or the names of some `Statistics`.

    Returns the output [batch, heads, queries, value_dim], of the type of q, or with return_stats a pair of it
    and `Statistics`. A row that sees no key has output 0 and no gradient. NaN in a key or value makes the rows that see
    it NaN, and no other row; docs/semantics.md lists every edge case. Output and statistics are differentiable with
    respect to q, k, v, bias and sinks, twice, in forward and reverse mode; a third derivative is a NotImplementedError.

    Raises ValueError or TypeError that names the argument, what it must be, and what was passed. Rules: docs/scale-rules.md.
    """
    if not torch.compiler.is_compiling() and options.keys() <= PLAIN_OPTIONS:
        plain = attend_plainly(q, k, v, return_stats, **options)
        if plain is not None:
            return plain
    options = without_sdpa_names(q, k, check_names("attention", options))
    if type(q) is not Tensor and is_jagged(q):
        return jagged_attention(q, k, v, return_stats, options)
    if type(q) is not Tensor and _has_sharded_rows(q) and options.keys() <= KNOWN["distributed.attention"]:
        from isentrope import distributed

        return distributed.attention(q, k, v, return_stats=return_stats, **options)
    return attend(call_of(q, k, v, **options), return_stats)


@overload
def attention_rows(
    q: Tensor, k: Tensor, v: Tensor, lambda_: Tensor, *, return_stats: _No = False, **options: Unpack[RowOptions]
) -> Tensor: ...


@overload
def attention_rows(
    q: Tensor, k: Tensor, v: Tensor, lambda_: Tensor, *, return_stats: _Wanted, **options: Unpack[RowOptions]
) -> _Pair: ...  # fmt: skip


def attention_rows(
    q: Tensor, k: Tensor, v: Tensor, lambda_: Tensor, *, return_stats: StatisticNames = False, **options: Any
) -> Any:
    """Computes `attention` with a given softmax scale for each row, differentiable with respect to it.

    lambda_: float32, broadcastable to [batch, heads, queries]. Everything else, errors included, is as in `attention`.
    """
    if not isinstance(lambda_, Tensor) or not isinstance(q, Tensor) or q.dim() != 4:
        raise TypeError(
            f"[attention] lambda_ and q must be tensors, q of 4 dimensions; got {kind(lambda_)} and {kind(q)}"
        )
    call = call_of(q, k, v, lambda_=lambda_, **check_names("attention_rows", options))
    result = attend(call, return_stats)
    if return_stats is False or result[1].lambda_ is None:
        return result
    return result[0], result[1]._replace(lambda_=call.lambda_)


@overload
def varlen_attention(
    q: Tensor, k: Tensor, v: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor | None = None, max_q: int | None = None,
    max_k: int | None = None, *, block_table: Tensor | None = None, seqused_k: Tensor | None = None,
    k_scale: Tensor | None = None, v_scale: Tensor | None = None,
    return_stats: _No = False, **options: Unpack[PackedOptions],
) -> Tensor: ...  # fmt: skip


@overload
def varlen_attention(
    q: Tensor, k: Tensor, v: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor | None = None, max_q: int | None = None,
    max_k: int | None = None, *, block_table: Tensor | None = None, seqused_k: Tensor | None = None,
    k_scale: Tensor | None = None, v_scale: Tensor | None = None,
    return_stats: _Wanted, **options: Unpack[PackedOptions],
) -> _Pair: ...  # fmt: skip


def varlen_attention(
    q: Tensor, k: Tensor, v: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor | None = None, max_q: int | None = None,
    max_k: int | None = None, *, block_table: Tensor | None = None, seqused_k: Tensor | None = None,
    k_scale: Tensor | None = None, v_scale: Tensor | None = None,
    return_stats: StatisticNames = False, **options: Any,
) -> Any:  # fmt: skip
    """Computes attention within each of several packed documents, or of packed queries over a paged cache.

    Names are those of `torch.nn.attention.varlen.varlen_attn`:
        q: [all queries, heads, dim], k: [all keys, kv_heads, dim], v: [all keys, kv_heads, value_dim].
        cu_seq_q, cu_seq_k: int32 or int64 [documents + 1], the beginnings of documents: 0, ..., all queries | keys.
            Errors call them cu_seqlens_q and cu_seqlens_k.
        max_q, max_k: accepted but not needed.
        attn_mask, bias: as in `attention`, broadcastable to [1, heads, all queries, all keys]. Over a paged cache the last
            dimension has the keys of all pages in a row of block_table, by their position in the sequence.
        window_size: (-1, 0) is causal, as in torch: the last query of a document is at its last key.

    With block_table, k and v are a paged cache, as in `decode`, and the queries of a sequence are the last of its keys:
    decode steps, chunks of a prompt and whole prompts in one call. Not differentiable, and without dropout:
        k, v: [pages, kv_heads, page_size, dim | value_dim]; a cache [pages, page_size, kv_heads, dim] is passed as
            `cache.transpose(1, 2)`. Or int8 from `quantize`, on the CPU, with k_scale and v_scale.
        block_table: int32 or int64 [sequences, pages of a sequence]; cu_seq_k is then None.
        seqused_k: int32 or int64 [sequences]: the number of keys of each, the new ones included (`write_cache`). None:
            all keys of its pages.
        cu_seq_q: int32 or int64 [sequences + 1]. prefix_keys is an integer, or integers [sequences].
    The bits of a sequence do not depend on the other sequences of a call.

    n is that of the document, or of the sequence. Returns the output [all queries, heads, value_dim], and statistics
    [heads, all queries]. Everything else, errors included, is as in `attention`.
    """
    paged = block_table is not None
    for name, tensor in (("q", q),) if paged else (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, Tensor) or tensor.is_nested or tensor.dim() != 3:
            raise ValueError(f"[varlen_attention] {name} must be a tensor of 3 dimensions; got {kind(tensor)}")
    options = without_sdpa_names(q, k, check_names("varlen_attention", options))
    q = q.transpose(0, 1).unsqueeze(0)
    if paged:
        if cu_seq_k is not None:
            raise ValueError(f"[varlen_attention] cu_seq_k must be None with block_table; got {kind(cu_seq_k)}")
        prefix: Any = options.get("prefix_keys")
        if is_integer(prefix) and isinstance(block_table, Tensor):
            options["prefix_keys"] = block_table.new_full(block_table.shape[:1], prefix, dtype=torch.int64)
        cache = Cache(q, k, v, block_table, seqused_k, k_scale, v_scale, cu_seq_q)
        result = _over_cache("varlen_attention", cache, return_stats, options)
    else:
        for name, given in (("seqused_k", seqused_k), ("k_scale", k_scale), ("v_scale", v_scale)):
            if given is not None:
                raise ValueError(f"[varlen_attention] {name} must be None without block_table; got {kind(given)}")
        k, v = (tensor.transpose(0, 1).unsqueeze(0) for tensor in (k, v))
        result = attend(call_of(q, k, v, cu_seqlens_q=cu_seq_q, cu_seqlens_k=cu_seq_k, **options), return_stats)
    return converted(result, lambda x: x.squeeze(0).transpose(0, 1), lambda x: x.squeeze(0))


@overload
def decode(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor | None = None, seqused_k: Tensor | None = None, *,
    k_scale: Tensor | None = None, v_scale: Tensor | None = None,
    return_stats: _No = False, **options: Unpack[SequenceOptions],
) -> Tensor: ...  # fmt: skip


@overload
def decode(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor | None = None, seqused_k: Tensor | None = None, *,
    k_scale: Tensor | None = None, v_scale: Tensor | None = None,
    return_stats: _Wanted, **options: Unpack[SequenceOptions],
) -> _Pair: ...  # fmt: skip


@overload
def decode(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor | None = None, seqused_k: Tensor | None = None, *,
    k_scale: Tensor | None = None, v_scale: Tensor | None = None,
    return_stats: StatisticNames = False, return_received: Literal[True], **options: Unpack[SequenceOptions],
) -> tuple[Any, ...]: ...  # fmt: skip


def decode(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor | None = None, seqused_k: Tensor | None = None, *,
    k_scale: Tensor | None = None, v_scale: Tensor | None = None,
    return_stats: StatisticNames = False, return_received: bool = False, **options: Any,
) -> Any:  # fmt: skip
    """Computes attention of the last few queries of each sequence over a cache, which may be paged.

        q: [batch, heads, queries, dim]; the queries are the last of their sequence.
        k_cache, v_cache: [pages, kv_heads, page_size, dim | value_dim] (vLLM's paged cache), of the type of q, or int8
            from `quantize`, on the CPU.
        block_table: int32 or int64 [batch, pages of a sequence]: the pages of each sequence, in order. None: sequence i
            is page i. An invalid page number is a ValueError on the CPU; a GPU does not check it, and reads outside the
            cache.
        seqused_k: int32 or int64 [batch]: the number of keys of each sequence, including those of the queries. None: all
            keys of its pages.
        k_scale, v_scale: float32 [pages, kv_heads, page_size, groups], for int8 caches, which are computed in float32.
        return_received: whether the last result is the weight that each key receives, as `received` computes it: float32
            [batch, heads, keys of all pages of a sequence], 0 from seqused_k on. It costs a decode step little, because
            keys are read once for both. On the CPU, not in float64.

    n is that of the sequence. Not differentiable: inputs that require gradients are a ValueError, unless gradients are
    disabled. Everything else, results and errors included, is as in `attention`.
    """
    cache = Cache(q, k_cache, v_cache, block_table, seqused_k, k_scale, v_scale)
    return _over_cache("decode", cache, return_stats, {"causal": True, **check_names("decode", options)}, return_received)


def _masks_by_key(cache: Cache, options: dict[str, Any]) -> dict[str, Tensor]:
    """Takes mask and bias out of `options`, and checks them: their keys are those of all pages of a sequence."""
    given = {name: options.pop(name) for name in ("attn_mask", "bias") if options.get(name) is not None}
    if not given:
        return {}
    keys = cache.q.new_empty(()).expand(1, 1, cache.pages().shape[1] * cache.k.shape[2], 1)
    return {name: CHECKS[name](name, value, cache.q, keys) for name, value in given.items()}  # type: ignore[misc]


def _over_cache(
    function: str, cache: Cache, return_stats: StatisticNames, options: dict[str, Any], return_received: bool = False
) -> Any:
    """Computes queries over a cache. function: its name, for errors."""
    try:
        by_key = _masks_by_key(cache, options)
        call = call_of(cache.q, cache.k, cache.v, **options)._replace(**by_key)
        if any_gradient(call):
            raise ValueError(
                "[attention] q, k_cache, v_cache and sinks must not require gradients; got one that does: use torch.no_grad() "
                "or isentrope.attention"
            )
        if any_tangent(call):
            raise NotImplementedError(
                f"[{function}] forward-mode derivatives are not implemented; got a tangent: use isentrope.attention"
            )
        names = statistic_names(return_stats)
        wanted = 0 if names is None else wanted_bits(names)
        scales: tuple[Tensor | None, ...] = cache.scales()
        if return_received and cache.q.dtype is torch.float64:
            raise ValueError("[attention] return_received must be False in float64; got True: use isentrope.received")
        operator = CHECKED.decode_codes if scales else CHECKED.decode
        if return_received:
            operator, scales = CHECKED.decode_received, scales or (None, None)
        sequences = cache.pages(), cache.keys(), cache.starts()
        output, statistics, support, *received = operator(*call, *scales, *sequences, wanted)
    except (TypeError, ValueError) as error:
        # Shared arguments are checked by attention's checks, which name it.
        raise type(error)(str(error).replace("[attention]", f"[{function}]", 1)) from None
    statistics = () if names is None else (unpack(names, wanted, statistics, support),)
    return (output, *statistics, *received) if statistics or received else output


def row_lengths(q: Tensor, k: Tensor, **masks: Unpack[MaskOptions]) -> Tensor:
    """Returns n, the number of keys that each row of `attention` sees: int64 [batch, heads, queries]; 0 for empty rows.

    Arguments and errors are as in `attention`.
    """
    return CHECKED.row_lengths(*call_of(q, k, k, **check_names("row_lengths", masks)))


def _has_sharded_rows(q: Any) -> bool:
    """Returns whether q is a DTensor with sharded rows, as in `isentrope.distributed`."""
    return any(placement.is_shard(2) for placement in getattr(q, "placements", ()))
