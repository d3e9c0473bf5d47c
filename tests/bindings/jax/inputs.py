"""Random inputs, and attention by definition in jax.numpy: the expected results."""

from __future__ import annotations

import numpy as np
from jax import numpy as jnp

_random = np.random.default_rng(0)


def restart():
    global _random
    _random = np.random.default_rng(0)


def normal(*shape, dtype=np.float64):
    return jnp.asarray(_random.standard_normal(shape), dtype)


def qkv(batch=2, queries=6, keys=6, heads=4, kv_heads=2, dim=8, value_dim=5, dtype=np.float64):
    return (
        normal(batch, queries, heads, dim, dtype=dtype),
        normal(batch, keys, kv_heads, dim, dtype=dtype),
        normal(batch, keys, kv_heads, value_dim, dtype=dtype),
    )


def seen(queries, keys, causal=False, window=None):
    """Returns the keys of each query, whose position is aligned with the last key unless causal is "top_left"."""
    key = np.arange(keys)
    position = np.arange(queries)[:, None] + (0 if causal == "top_left" else keys - queries)
    mask = np.ones((queries, keys), bool)
    if causal:
        mask &= key <= position
    if window is not None:
        mask &= (key >= position - window[0]) & (key <= position + window[1])
    return jnp.asarray(mask)


def dense(q, k, v, bias=None, mask=True, base=None, soft_cap=0, sinks=None):
    """Returns output and statistics by name; the rule is standard, or entropy_invariant with a base."""
    group = q.shape[-2] // k.shape[-2]
    k, v = jnp.repeat(k, group, axis=-2), jnp.repeat(v, group, axis=-2)
    scores = jnp.einsum("...qhd,...khd->...hqk", q, k)
    mask = jnp.broadcast_to(mask, scores.shape)
    n = mask.sum(-1, keepdims=True)
    gain = jnp.log(jnp.maximum(n, 1)) / np.log(base) if base else 1.0
    lambda_ = jnp.broadcast_to(gain / np.sqrt(q.shape[-1]), n.shape)
    z = lambda_ * scores
    if soft_cap:
        z = soft_cap * jnp.tanh(z / soft_cap)
    if bias is not None:
        z = z + bias
    empty = n == 0
    z = jnp.where(mask, z, -1e300 if z.dtype == jnp.float64 else -1e30)
    top = jnp.max(z, -1, keepdims=True)
    e = jnp.where(mask, jnp.exp(z - top), 0)
    total = jnp.where(empty, 1, e.sum(-1, keepdims=True))
    p, lse = e / total, jnp.log(total) + top
    log_p = jnp.where(mask, z - lse, 0)
    share = 1.0 if sinks is None else 1 / (1 + jnp.exp(sinks[:, None, None] - lse))
    output = jnp.einsum("...hqk,...khd->...qhd", p * share, v)
    entropy = -(p * log_p).sum(-1)
    statistics = {
        "lse": jnp.where(empty, -jnp.inf, lse)[..., 0],
        "entropy": entropy,
        "collision": (p**2).sum(-1),
        "variance": (p * (log_p + entropy[..., None]) ** 2).sum(-1),
        "max_probability": p.max(-1),
        "max_logit": jnp.where(empty, -jnp.inf, top)[..., 0],
        "lambda_": lambda_[..., 0],
        "support": n[..., 0],
    }
    return output, {name: jnp.swapaxes(x, -1, -2) for name, x in statistics.items()}
