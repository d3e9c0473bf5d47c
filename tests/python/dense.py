"""Attention as its definition reads, in torch's own operators: what the fused operator is held to."""

from __future__ import annotations

import torch
from torch import Tensor

import isentrope


def visible(q: Tensor, k: Tensor, causal=False, window_size=(-1, -1), attn_mask=None, key_begin=None, key_end=None):
    """Which keys each row sees, bool [batch, heads, queries, keys], and n of each row."""
    batch, heads, queries, keys = q.shape[0], q.shape[1], q.shape[2], k.shape[2]
    position = torch.arange(queries)[:, None] + (keys - queries if causal in (True, "bottom_right") else 0)
    key = torch.arange(keys)[None]
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if causal:
        seen &= key <= position
    left, right = window_size
    if left >= 0:
        seen &= key >= position - left
    if right >= 0:
        seen &= key <= position + right
    seen = seen.expand(batch, heads, queries, keys).clone()
    if attn_mask is not None:
        seen &= attn_mask
    if key_begin is not None:
        seen &= key[None, None] >= key_begin[:, None, None, None]
    if key_end is not None:
        seen &= key[None, None] < key_end[:, None, None, None]
    return seen, seen.sum(-1)


def dense(q, k, v, rule="standard", lambda_=None, bias=None, soft_cap=0.0, sinks=None, **masks):
    """(output, Statistics) in the type of q; give it float64."""
    seen, n = visible(q, k, **masks)
    if lambda_ is None:
        value = isentrope.ScaleRule(rule)
        table = [[value.lambda_(i, q.shape[3], h if "[" in rule else 0) for i in range(k.shape[2] + 1)] for h in range(q.shape[1])]
        lambda_ = torch.tensor(table, dtype=q.dtype)[torch.arange(q.shape[1])[None, :, None], n]
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    z = q @ k.transpose(-2, -1) * lambda_[..., None]
    if soft_cap:
        z = soft_cap * (z / soft_cap).tanh()
    if bias is not None:
        z = z + bias
        seen = seen & (bias > -torch.inf)
    # A finite stand-in for -inf keeps NaN out of the gradients of hidden keys.
    z = z.masked_fill(~seen, -1e30)
    some = seen.any(-1)
    lse = torch.where(some, z.logsumexp(-1), -torch.inf)
    log_p = z - z.logsumexp(-1, keepdim=True)
    p = log_p.exp() * seen
    kept = torch.where(seen, log_p, 0)
    mean = (p * kept).sum(-1, keepdim=True)
    weights = p
    if sinks is not None:
        weights = p * torch.where(some, torch.sigmoid(lse.nan_to_num(neginf=0) - sinks[:, None]), 1)[..., None]
    statistics = isentrope.Statistics(
        lse=lse,
        entropy=-mean.squeeze(-1),
        collision=p.square().sum(-1),
        variance=(p * (kept - mean).square()).sum(-1),
        max_logit=torch.where(some, z.max(-1).values, -torch.inf) if k.shape[2] else lse,
        lambda_=lambda_.expand(q.shape[:3]),
        support=seen.sum(-1),
    )
    return weights @ v, statistics
