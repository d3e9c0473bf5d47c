"""torch's own function of attention, computed by isentrope."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from isentrope._core.checks import kind
from isentrope._core.layouts import is_jagged
from isentrope._core.library import refuse_arguments
from isentrope._core.values import check_bool
from isentrope.functions import attention
from isentrope.rules import Rule

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Computes `torch.nn.functional.scaled_dot_product_attention`, with its arguments and meaning.

        query: [..., queries, dim], key: [..., keys, dim], value: [..., keys, value_dim], of types as in `isentrope.attention`;
            leading axes are broadcast. With enable_gqa the number of heads of key and value, their third axis from the
            end, divides that of query.
        attn_mask: bool, True lets a row see a key, or floating point, added to the logits; broadcastable to
            [..., queries, keys].
        dropout_p: at least 0 and below 1; the seed is drawn from torch's generator.
        is_causal: query i sees keys 0 ... i, also if there are more keys than queries; not with attn_mask.

    dim and value_dim are at least 1. Returns [..., queries, value_dim]. A row without keys has output 0. `isentrope.attention` has rules and statistics.

    Raises ValueError or TypeError that names the argument.
    """
    return under_rule(
        "standard", query, key, value, attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )


def under_rule(
    rule: Rule, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, *, is_causal: bool = False,
    enable_gqa: bool = False, compute: Callable[..., Tensor] = attention, **options: Any,
) -> Tensor:  # fmt: skip
    """Computes torch's function under a rule. `scale` replaces its 1/sqrt(dim). compute: has the signature of `attention`."""
    for name, flag in (("is_causal", is_causal), ("enable_gqa", enable_gqa)):
        check_bool("scaled_dot_product_attention", name, flag)
    if attn_mask is not None and not isinstance(attn_mask, Tensor):
        raise TypeError(f"[scaled_dot_product_attention] attn_mask must be a tensor; got {type(attn_mask).__name__}")
    if attn_mask is not None and is_causal:
        raise ValueError("[scaled_dot_product_attention] attn_mask must be None with is_causal; got both")
    if is_jagged(query):
        options |= {"attn_mask": attn_mask, "is_causal": is_causal, "enable_gqa": enable_gqa}
        return compute(query, key, value, rule=rule, **options)
    tensors = {"query": query, "key": key, "value": value}
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor) or tensor.dim() < 2:
            required = f"[scaled_dot_product_attention] {name} must be a tensor of at least 2 dimensions"
            raise ValueError(f"{required}; got {kind(tensor)}")
    refuse_arguments([*tensors.items(), ("attn_mask", attn_mask)])
    try:
        batch = torch.broadcast_shapes(*(tensor.shape[:-3] for tensor in tensors.values()))
        heads = [tensor.shape[-3] if tensor.dim() > 2 else 1 for tensor in tensors.values()]
        if not enable_gqa:
            heads = list(torch.broadcast_shapes(*((count,) for count in heads))) * 3
    except RuntimeError:
        raise ValueError(
            "[scaled_dot_product_attention] query, key and value must be broadcastable before their last two dimensions, but "
            f"for heads with enable_gqa=True; got {', '.join(str(list(tensor.shape)) for tensor in tensors.values())}"
        ) from None
    if enable_gqa and heads[1] != heads[2]:
        tensors, heads = _with_equal_heads(tensors, heads)
    q, k, v = (_of_rank_4(tensor, batch, count) for tensor, count in zip(tensors.values(), heads))
    if attn_mask is not None:
        attn_mask = _mask_of_rank_4(attn_mask, (*batch, heads[0], q.shape[2], k.shape[2]))
    bias = None
    if rule != "standard" and attn_mask is not None and attn_mask.is_floating_point():
        # -inf hides a key from n too, as behind torch's own function.
        bias, attn_mask = attn_mask, attn_mask > -torch.inf
    output = compute(q, k, v, rule=rule, attn_mask=attn_mask, bias=bias, is_causal=is_causal, **options)
    before = (*batch, heads[0]) if max(tensor.dim() for tensor in tensors.values()) > 2 else ()
    shape = (*before, *output.shape[2:])
    return output if output.shape == shape else output.reshape(shape)


def nested_under_rule(rule: Rule, query: Tensor, key: Tensor, value: Tensor, attn_mask: None = None, **options: Any) -> Tensor:
    """Computes `under_rule` of nested tensors in torch's strided layout, one call for each sequence."""
    sequences = zip(query.unbind(), key.unbind(), value.unbind(), strict=True)
    return torch.nested.as_nested_tensor([under_rule(rule, *tensors, **options) for tensors in sequences])


def _with_equal_heads(tensors: dict[str, Tensor], heads: list[int]) -> tuple[dict[str, Tensor], list[int]]:
    """Repeats heads of key and value, whose numbers both divide that of query but may differ."""
    count = math.lcm(*heads[1:])
    for name, has in zip(("key", "value"), heads[1:]):
        if 0 < has < count:
            tensors = tensors | {name: tensors[name].repeat_interleave(count // has, dim=-3)}
    return tensors, [heads[0], count, count]


def _of_rank_4(tensor: Tensor, batch: tuple, heads: int) -> Tensor:
    rows, columns = tensor.shape[-2:]
    return tensor.expand(*batch, heads, rows, columns).reshape(math.prod(batch), heads, rows, columns)


def _mask_of_rank_4(mask: Tensor, shape: tuple) -> Tensor:
    try:
        return mask.expand(shape).reshape(math.prod(shape[:-3]), *shape[-3:])
    except RuntimeError:
        raise ValueError(
            f"[scaled_dot_product_attention] attn_mask must be broadcastable to {list(shape)}; got {list(mask.shape)}"
        ) from None


def is_taken(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float, is_causal: bool) -> bool:
    """Returns whether the operator can compute the call. Otherwise torch does, errors included."""
    tensors = (q, k, v)
    if q.dtype not in DTYPES or any(x.dtype != q.dtype or x.device != q.device for x in tensors):
        return False
    if not 0 <= dropout_p < 1:
        return False
    if any(x.is_nested for x in tensors):
        return all(x.is_nested for x in tensors) and mask is None and not is_causal
    if any(x.dim() < 2 or x.shape[-1] == 0 for x in tensors):
        return False
    # torch refuses masks of other types.
    return mask is None or not is_causal and mask.dtype in (torch.bool, torch.float32, q.dtype)


def warn_of_own(rule: str, q: Tensor) -> None:
    """Warns that torch computes a call without the active rule. Without columns every scale gives the same weights."""
    if rule != "standard" and (q.is_nested or q.shape[-1] > 0):
        warnings.warn(
            f"[sdpa.activate] torch computes this call of {q.dtype} on {q.device} itself, under 1/sqrt(dim) and not under "
            f"{rule}: call isentrope.attention",
            stacklevel=2,
        )
