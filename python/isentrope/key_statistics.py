"""Statistics of keys: the weight that each key receives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isentrope._core import key_statistics as _gradients
from isentrope._core.cache import Cache
from isentrope._core.call import Call, call_of, without_sdpa_names
from isentrope._core.checks import kind, on_device_of
from isentrope._core.library import CHECKED
from isentrope._core.options import KeyOptions, check_names
from isentrope._core.values import check_choice

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
    sums are below the number of rows. Takes about half the time of `attention`, and no memory that grows with
    queries times keys. Differentiable with respect to q, k, bias, sinks and weights, but not over a cache; lse counts as
    a function of these, so it needs no gradient of its own. float64 on the CPU, for tests. Raises as `attention` does.
    """
    try:
        check_choice("received", "heads", heads, ("query", "key"))
        cache = None
        if any(x is not None for x in (block_table, seqused_k, k_scale)):
            cache = Cache(q, k, k, block_table, seqused_k, k_scale, k_scale)
            options = {"causal": True, **options}
        options = without_sdpa_names(q, k, check_names("received", options))
        call = call_of(q, k, k, **options)
        rows = _of_rows("lse", lse.detach() if isinstance(lse, Tensor) else lse, call)
        weights = None if weights is None else _of_rows("weights", weights, call)
        if cache is None:
            result = _gradients.received(call, rows, weights)
        else:
            if torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in (*call, weights)):
                raise ValueError("[received] inputs must not require gradients over a cache; got one that does: use torch.no_grad()")
            scales = cache.scales()[:1] or (None,)
            result = CHECKED.received_paged(*call, rows, weights, *scales, cache.pages(), cache.keys())
    except (TypeError, ValueError) as error:
        # Shared arguments are checked by attention's checks, which name it.
        message = str(error).replace("[attention]", "[received]", 1).replace("[decode]", "[received]", 1)
        raise type(error)(message) from None
    return result if heads == "query" else _mean_of_groups(result, k.shape[1])


def _of_rows(name: str, tensor: Any, call: Call) -> Tensor:
    """Returns a number for each row, as the operators take them."""
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        raise TypeError(f"[received] {name} must be a floating-point tensor; got {kind(tensor)}")
    on_device_of(call.q, name, tensor)
    try:
        expanded = tensor.expand(call.q.shape[:3])
    except RuntimeError:
        raise ValueError(
            f"[received] {name} must be broadcastable to {list(call.q.shape[:3])}; got {list(tensor.shape)}"
        ) from None
    return expanded.to(torch.float64 if call.q.dtype is torch.float64 else torch.float32)


def _mean_of_groups(of_heads: Tensor, kv_heads: int) -> Tensor:
    if kv_heads == of_heads.shape[1]:
        return of_heads
    return of_heads.unflatten(1, (kv_heads, -1)).mean(2)
