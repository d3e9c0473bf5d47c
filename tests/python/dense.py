"""Attention by definition in torch's own operators: the expected results of the fused operator."""

from __future__ import annotations

import torch
from torch import Tensor

import isentrope
from isentrope._core.library import STATISTICS

DIFFERENTIABLE = tuple(statistic["name"] for statistic in STATISTICS if statistic["differentiable"])


def positions(queries, keys, causal=False, query_offset=0, sequence_keys=0, **_):
    """Returns the position of each query in keys: the last is at the last key, or positions are said."""
    at = torch.arange(queries) + query_offset
    return at if causal == "top_left" or sequence_keys else at + keys - queries


def visible(
    q: Tensor, k: Tensor, causal=False, window_size=(-1, -1), attn_mask=None, key_begin=None, key_end=None,
    query_offset=0, key_offset=0, sequence_keys=0, dilation=0, chunk_size=0, prefix_keys=None,
):  # fmt: skip
    """Returns the keys of each row, bool [batch, heads, queries, keys], and n in the whole sequence."""
    batch, heads, queries, keys = q.shape[0], q.shape[1], q.shape[2], k.shape[2]
    position = positions(queries, keys, causal, query_offset, sequence_keys)[:, None]
    first = 0 if sequence_keys else key_offset
    key = torch.arange(first, sequence_keys or key_offset + keys)[None]
    mask = torch.ones(queries, key.shape[1], dtype=torch.bool)
    if causal:
        mask &= key <= position
    left, right = window_size
    if left >= 0:
        mask &= key >= position - left
    if right >= 0:
        mask &= key <= position + right
    mask = mask.expand(batch, heads, queries, -1).clone()
    if prefix_keys is not None:
        begin = 0 if key_begin is None else key_begin
        prefix = torch.as_tensor(begin + prefix_keys).expand(batch)
        mask |= key[None, None] < prefix[:, None, None, None]
    if chunk_size:
        begin = torch.zeros(batch, dtype=torch.long) if key_begin is None else key_begin
        chunk = lambda at: (at - begin[:, None, None]).div(chunk_size, rounding_mode="floor")  # noqa: E731
        mask &= (chunk(key) == chunk(position))[:, None]
    if dilation > 1:
        mask &= (key - position) % dilation == 0
    if attn_mask is not None:
        mask &= attn_mask
    if key_begin is not None:
        mask &= key[None, None] >= key_begin[:, None, None, None]
    if key_end is not None:
        mask &= key[None, None] < key_end[:, None, None, None]
    return mask[..., key_offset - first :][..., :keys], mask.sum(-1)


def philox(counter, seed):
    """Returns Philox4x32-10 of four counters, broadcast int64 tensors of 32-bit values (docs/adr/0013)."""
    low = 0xFFFFFFFF
    a, b, c, d = counter
    key = [seed & low, seed >> 32 & low]
    for _ in range(10):
        left, right = 0xD2511F53 * a, 0xCD9E8D57 * c  # the upper bits are right although the sign is not
        a, b, c, d = (right >> 32 & low) ^ b ^ key[0], right & low, (left >> 32 & low) ^ d ^ key[1], left & low
        key = [(key[0] + 0x9E3779B9) & low, (key[1] + 0xBB67AE85) & low]
    return a, b, c, d


def dropout_factors(batch, heads, queries, keys, p, seed, query_offset=0, key_offset=0, **_):
    """Returns float64 [batch, heads, queries, keys]: 0 for dropped weights, else 1 / (1 - p)."""
    axis = lambda count, first, at: (torch.arange(count) + first).reshape([-1 if i == at else 1 for i in range(4)])  # noqa: E731
    key = axis(keys, key_offset, 3)
    words = philox((key // 4, axis(queries, query_offset, 2), axis(heads, 0, 1), axis(batch, 0, 0)), seed)
    bits = torch.stack([x.expand(batch, heads, queries, keys) for x in words]).gather(
        0, (key % 4).expand(1, batch, heads, queries, keys)
    )[0]
    p = torch.tensor(p, dtype=torch.float32).double()
    return (bits >= (p * 2**32).round()).double() / (1 - p)


def dense(
    q, k, v, rule="standard", lambda_=None, bias=None, soft_cap=0.0, sinks=None, dropout_p=0.0, dropout_seed=0, **masks
):  # fmt: skip
    """Returns (output, Statistics) in the type of q, which should be float64."""
    mask, n = visible(q, k, **masks)
    if lambda_ is None:
        value = isentrope.ScaleRule(rule)
        heads, lengths = range(q.shape[1]), range(int(n.max()) + 1)
        table = [[value.lambda_(i, q.shape[3], h if "[" in rule else 0) for i in lengths] for h in heads]
        lambda_ = torch.tensor(table, dtype=q.dtype)[torch.tensor(heads)[None, :, None], n]
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    z = q @ k.transpose(-2, -1) * lambda_[..., None]
    if soft_cap:
        z = soft_cap * (z / soft_cap).tanh()
    if bias is not None:
        z = z + bias
        mask = mask & (bias > -torch.inf)
    # A finite value in place of -inf keeps NaN out of the gradients of hidden keys.
    z = z.masked_fill(~mask, -1e30)
    some = mask.any(-1)
    lse = torch.where(some, z.logsumexp(-1), -torch.inf)
    log_p = z - z.logsumexp(-1, keepdim=True)
    p = log_p.exp() * mask
    kept = torch.where(mask, log_p, 0)
    mean = (p * kept).sum(-1, keepdim=True)
    own_key = positions(q.shape[2], k.shape[2], **masks) - masks.get("key_offset", 0)
    away = (own_key[:, None] - torch.arange(k.shape[2])).abs()
    weights = p
    if sinks is not None:
        weights = p * torch.where(some, torch.sigmoid(lse.nan_to_num(neginf=0) - sinks[:, None]), 1)[..., None]
    statistics = isentrope.Statistics(
        lse=lse,
        entropy=-mean.squeeze(-1),
        collision=p.square().sum(-1),
        variance=(p * (kept - mean).square()).sum(-1),
        distance=(p * away).sum(-1),
        max_probability=p.amax(-1) if k.shape[2] else 0 * lse,
        max_logit=torch.where(some, z.max(-1).values, -torch.inf) if k.shape[2] else lse,
        lambda_=lambda_.expand(q.shape[:3]),
        support=mask.sum(-1),
    )
    if dropout_p:
        weights = weights * dropout_factors(*weights.shape, dropout_p, dropout_seed, **masks)
    return weights @ v, statistics
