"""Statistics of keys: the weight that each key receives, and weights of chosen keys."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from typing_extensions import Unpack

from isentrope._core import key_statistics as _operators
from isentrope._core.attend import any_gradient, any_tangent
from isentrope._core.cache import Cache
from isentrope._core.call import Call, call_of, without_sdpa_names
from isentrope._core.checks import each_row, integers, per_row
from isentrope._core.library import CHECKED
from isentrope._core.options import KeyOptions, check_names
from isentrope._core.values import check_choice


def received(
    q: Tensor, k: Tensor, lse: Tensor, *, weights: Tensor | None = None, heads: str = "query",
    block_table: Tensor | None = None, seqused_k: Tensor | None = None, k_scale: Tensor | None = None,
    **options: Unpack[KeyOptions],
) -> Tensor:  # fmt: skip
    """Returns the weight that each key receives, summed over rows: which entries of a cache matter, and which are sinks.

        received_j = sum_i weights_i p_ij       p = softmax(z, sinks), as in `attention`

        q, k: as in `attention`, whose values do not matter here.
        lse: float [batch, heads, queries], the statistic that `attention` returns under the same options.
        weights: float, broadcastable to [batch, heads, queries]; None: 1. Rows of weight 0 are not read, so the last 64
            rows (SnapKV) cost little: `(torch.arange(queries) >= queries - 64).float()`.
        heads: "query", or "key" for the mean over the query heads that share a key head.
        block_table, seqused_k, k_scale: as in `decode`, for a cache k [pages, kv_heads, page_size, dim]; the queries are
            the last of their sequence. With one of them, `causal` is True by default.
        options: those of `attention` that shape p, without dropout; and cu_seqlens_q, cu_seqlens_k, the beginnings of
            packed documents, with q, k and lse of one batch.

    Returns float32 [batch, heads or kv_heads, keys]; over a cache the keys of all pages of the longest block table, 0
    from seqused_k on. A key that no row sees receives 0; NaN in a row reaches the keys that it sees. With sinks,
    sums are below the number of rows. Takes about 0.6 of the time of `attention`, and no memory that grows with
    queries times keys. Differentiable with respect to q, k, bias, sinks and weights, but not over a cache; lse counts as
    a function of these, so it needs no gradient of its own. float64 on the CPU, for tests. Raises as `attention` does.
    """
    with _Named("received"):
        check_choice("received", "heads", heads, ("query", "key"))
        call, cache = _prepared("received", q, k, (block_table, seqused_k, k_scale), options)
        of_rows = each_row("lse", lse, call.q, call.k).detach()
        weights = None if weights is None else per_row("weights", weights, call.q, call.k)
        if cache is None:
            result = _operators.received(call, of_rows, weights)
        else:
            result = _over_cache(CHECKED.received_paged, cache, (*call, of_rows, weights))
    if heads == "query" or k.shape[1] == q.shape[1]:
        return result
    return result.unflatten(1, (k.shape[1], -1)).mean(2)


def weights_at(
    q: Tensor, k: Tensor, lse: Tensor, keys: Tensor, *,
    block_table: Tensor | None = None, seqused_k: Tensor | None = None, k_scale: Tensor | None = None,
    **options: Unpack[KeyOptions],
) -> Tensor:  # fmt: skip
    """Returns the softmax weights of chosen keys of each row, at one dot product each.

        keys: int64, broadcastable to [batch, heads, queries, m]: the keys of each row, counted from the first. Weights of
            the previous key (RAUQ): `torch.arange(-1, queries - 1)[:, None]`.

    Returns float32 [batch, heads, queries, m], 0 where the row does not see the key or there is no such key.
    Differentiable with respect to q, k, bias and sinks, but not over a cache. Its gradient holds a copy of the chosen
    keys, [batch, heads, queries, m, dim]. Second derivatives under a soft-cap raise NotImplementedError. Everything else,
    errors included, is as in `received`.
    """
    with _Named("weights_at"):
        call, cache = _prepared("weights_at", q, k, (block_table, seqused_k, k_scale), options)
        of_rows = each_row("lse", lse, call.q, call.k).detach()
        chosen = integers("keys", keys, q, k)
        try:
            chosen = chosen.expand(*call.q.shape[:3], -1)
        except RuntimeError:
            raise ValueError(
                f"[attention] keys must be broadcastable to {[*call.q.shape[:3], 'keys of a row']}; got {list(keys.shape)}"
            ) from None
        if cache is None:
            return _operators.weights_at(call, of_rows, chosen)
        return _over_cache(CHECKED.weights_at_paged, cache, (*call, of_rows, chosen))[0]


class _Named:
    """Renames errors about shared arguments, whose checks name `attention` or `decode`. A class, because compilers cannot
    trace errors through functions that `contextlib` makes contexts."""

    def __init__(self, function: str) -> None:
        self.function = function

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, (TypeError, ValueError, NotImplementedError)):
            for name in ("[attention]", "[decode]"):
                if str(error).startswith(name):
                    raise type(error)(f"[{self.function}]{str(error)[len(name):]}") from None


def _prepared(function: str, q: Tensor, k: Tensor, of_cache: tuple, options: Any) -> tuple[Call, Cache | None]:
    """Returns the call, and its cache if it has one."""
    cache = None
    if any(x is not None for x in of_cache):
        block_table, seqused_k, k_scale = of_cache
        cache = Cache(q, k, k, block_table, seqused_k, k_scale, k_scale)
        options = {"causal": True, **options}
    options = without_sdpa_names(q, k, check_names(function, options))
    return call_of(q, k, k, **options), cache


def _over_cache(operator: Any, cache: Cache, arguments: tuple) -> Any:
    if any_gradient(arguments):
        raise ValueError("[attention] inputs must not require gradients over a cache; got one that does: use torch.no_grad()")
    if any_tangent(arguments):
        raise NotImplementedError("[attention] forward-mode derivatives are not implemented over a cache; got a tangent")
    return operator(*arguments, *(cache.scales()[:1] or (None,)), cache.pages(), cache.keys(), None)
