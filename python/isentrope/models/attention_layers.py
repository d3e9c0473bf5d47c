"""Recognises the projections of attention modules: those of transformers, from its attributes and configuration, and torch's own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from torch import nn

from isentrope.models.projections import Projections, fused, latent, of_rows, separate

_HEAD_SIZES = ("head_dim", "attention_head_size", "key_value_proj_dim", "head_size", "attention_head_dim")
_SEPARATE = (("q_proj", "k_proj"), ("query", "key"), ("q", "k"), ("q_lin", "k_lin"), ("wq", "wk"))

# Classes whose attention has no product of queries and keys before a softmax. Kimi Linear's plain attention has one.
_WITHOUT_LOGITS = re.compile("(?<!Kimi)Linear(Self)?Attention|Lightning|DeltaAttention|DeltaNet|Deformable")


def recognised(module: nn.Module) -> Projections | None:
    """Returns the projections of a known attention module; None for any other module."""
    if isinstance(module, nn.MultiheadAttention):
        return _of_torch(module)
    if _WITHOUT_LOGITS.search(type(module).__name__):
        return None
    head_dim = next((size for name in _HEAD_SIZES if isinstance(size := getattr(module, name, None), int)), None)
    children: dict[str, Any] = module._modules
    if "kv_b_proj" in children and hasattr(module, "qk_nope_head_dim"):
        q = children.get("q_b_proj") or children.get("q_proj")
        return q and latent(q, children["kv_b_proj"], module.qk_nope_head_dim, module.qk_rope_head_dim, module.v_head_dim)
    if head_dim is None:
        return None
    for query, key in _SEPARATE:
        if children.get(query) is not None and children.get(key) is not None:
            return separate(children[query], children[key], head_dim)
    return _of_one_layer(module, head_dim)


def unknown_attentions(model: nn.Module, known: Iterable[str]) -> list[str]:
    """Returns the names of modules whose class says attention and that have matrices, but no known module in or around them."""
    unknown: list[str] = []
    for name, module in reversed(list(model.named_modules())):  # inner modules first
        related = (*known, *unknown)
        kind = type(module).__name__
        looks_like_attention = "attention" in kind.lower() and not _WITHOUT_LOGITS.search(kind)
        if looks_like_attention and any(parameter.dim() > 1 for parameter in module.parameters()):
            if not any(_contains(name, other) or _contains(other, name) for other in related):
                unknown.append(name)
    return unknown[::-1]


def _contains(outer: str, inner: str) -> bool:
    return f"{inner}.".startswith(f"{outer}." if outer else "")


def _of_one_layer(module: Any, head_dim: int) -> Projections | None:
    children, config = module._modules, getattr(module, "config", None)
    if "query_key_value" in children:  # GPT-NeoX, BLOOM; Falcon has two more layouts
        grouped = getattr(module, "new_decoder_architecture", False)
        if not grouped and getattr(module, "multi_query", False):
            return fused(children["query_key_value"], head_dim, 1)
        return fused(children["query_key_value"], head_dim, module.num_kv_heads if grouped else None, by_head=True)
    if "qkv_proj" in children:
        return fused(children["qkv_proj"], head_dim, getattr(config, "num_key_value_heads", None))
    if isinstance(children.get("qkv"), nn.Linear):
        return _of_vision(module, head_dim)
    if "Wqkv" in children:
        return fused(children["Wqkv"], head_dim, getattr(module, "num_key_value_heads", None))
    if getattr(module, "is_cross_attention", False) and "q_attn" in children:
        return _of_gpt2_cross_attention(children["q_attn"], children["c_attn"], head_dim)
    if "c_attn" in children:
        multi_query = getattr(module, "multi_query", None)  # GPTBigCode; GPT-2 has all queries first, too
        return fused(children["c_attn"], head_dim, 1 if multi_query else None, by_head=multi_query is False)
    return None


def _of_vision(module: Any, head_dim: int) -> Projections | None:
    """Rows of all queries, all keys, all values (Qwen-VL, BLIP, timm); None unless the numbers of heads say so."""
    heads = getattr(module, "num_heads", 0)
    kv_heads = getattr(module, "num_key_value_heads", heads)
    rows = (heads + 2 * kv_heads) * head_dim
    return fused(module.qkv, head_dim, kv_heads) if heads and module.qkv.out_features == rows else None


def _of_gpt2_cross_attention(q: nn.Module, kv: nn.Module, head_dim: int) -> Projections:
    """One layer for the queries, and one with all keys before all values."""
    heads = separate(q, q, head_dim).heads
    of_queries = [(head, head_dim, 0.5) for head in range(heads)]
    return Projections(heads, [of_rows(q, of_queries), of_rows(kv, [*of_queries, (0, heads * head_dim, 0.0)])])


def _of_torch(module: nn.MultiheadAttention) -> Projections:
    heads, size = module.num_heads, module.head_dim
    half = [(head, size, 0.5) for head in range(heads)]
    if module._qkv_same_embed_dim:
        parts = fused(module, size, names=("in_proj_weight", "in_proj_bias")).parts
    else:
        parts = [of_rows(module, half, ("q_proj_weight",)), of_rows(module, half, ("k_proj_weight",))]
        if module.in_proj_bias is not None:
            parts.append(of_rows(module, [*half, *half, (0, heads * size, 0.0)], ("in_proj_bias",)))
    if module.bias_k is not None:  # a further key, [1, 1, width]; that of add_zero_attn has logit 0, whatever gamma is
        parts.append(replace(of_rows(module, half, ("bias_k",)), axis=2))
    return Projections(heads, parts)
