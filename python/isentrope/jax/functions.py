"""The function that computes attention of JAX's arrays."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from jax import numpy as jnp

from isentrope.jax.library import STATISTICS, Statistics, refuse
from isentrope.jax.options import lengths, mask_options, must, number, of_weights, rule_text, statistic_names, visible
from isentrope.jax.primitives import bind, forward, varying_alike
from isentrope.jax.sharding import by_batches_and_heads
from isentrope.jax.spec import Spec

_refuse = functools.lru_cache(refuse)  # jit calls nothing of this, but a loop of eager calls does


def attention(
    q: Any, k: Any, v: Any, bias: Any = None, mask: Any = None, *,
    rule: Any = "standard", scale: float | None = None, causal: bool | str = False,
    window_size: tuple[int, int] | None = None, soft_cap: float = 0, sinks: Any = None,
    key_value_seq_lengths: Any = None, query_seq_lengths: Any = None, return_stats: bool | Sequence[str] = False,
    is_causal: bool = False, local_window_size: int | tuple[int, int] | None = None, return_residual: bool = False,
    implementation: str | None = None,
) -> Any:  # fmt: skip
    """Computes attention whose softmax scale may depend on the number of keys that each row sees.

        z = soft_cap tanh(lambda q.k / soft_cap) + bias       p = softmax(z, sinks)       output = p v

    Shapes and types, which are those of `jax.nn.dot_product_attention`:
        q: [batch, queries, heads, dim], k: [batch, keys, kv_heads, dim], v: [batch, keys, kv_heads, value_dim], or all
            without batch; all float32, bfloat16 or float16, or float64, which is slow and for tests. kv_heads divides heads:
            query head h reads key head h // (heads / kv_heads).
        bias: broadcastable to [batch, heads, queries, keys], in which it has gradients; -inf hides a key from the softmax,
            but not from n.
        mask: bool, broadcastable to the same shape; True lets a row see a key, False hides it from the softmax and from n.
        rule: lambda(n, dim), the text of a rule or an `isentrope.ScaleRule`. n counts the keys that the masks let a row see.
        scale: a number that replaces the rule's 1/sqrt(dim).
        causal: False, "top_left", or True = "bottom_right": the last query sees the last key.
        window_size: (left, right), keys position - left ... position + right; -1: no limit. Query i is at position
            i + keys - queries, causal or not; with causal="top_left" at i.
        soft_cap: finite and at least 0 (Gemma 2); 0: none.
        sinks: [heads], logits that join the softmax without a value (gpt-oss); statistics are those of the real keys.
        key_value_seq_lengths, query_seq_lengths: integers [batch]; further keys are padding, further queries see no key.
        is_causal, local_window_size, return_residual: as in JAX's function. Query i is at position i: is_causal means
            causal="top_left". return_residual returns (output, lse).
        implementation: None or "xla", for callers of JAX's function; neither changes anything.
        return_stats: False, True, or the names of some `Statistics`.

    Returns the output [batch, queries, heads, value_dim], of the type of q, or with return_stats a pair of it and
    `Statistics`, each [batch, queries, heads]. A row that sees no key has output 0 and no derivatives; docs/semantics.md lists
    every edge case. Output and statistics have derivatives with respect to q, k, v, bias and sinks, of first order in forward
    and reverse mode.

    Raises ValueError or TypeError that names the argument, what it must be, and what was passed; shapes are told as [batch,
    heads, length, dim]. Rules: docs/scale-rules.md.
    """
    if implementation not in (None, "xla"):
        raise must("implementation", 'be None or "xla"', implementation)
    arrays = {"q": jnp.asarray(q), "k": jnp.asarray(k), "v": jnp.asarray(v)}
    without_batch = arrays["q"].ndim == 3
    for name, x in arrays.items():
        if x.ndim != (3 if without_batch else 4):
            raise must(name, "have 4 dimensions, or 3 as q and k and v", x.ndim)
        arrays[name] = x[None] if without_batch else x
    (batch, queries, *_), keys = arrays["q"].shape, arrays["k"].shape[1]
    in_type = jnp.float64 if arrays["q"].dtype == jnp.float64 else jnp.float32
    if mask is not None or query_seq_lengths is not None:
        arrays["attn_mask"] = visible(mask, query_seq_lengths, batch, queries)
    if bias is not None:
        arrays["bias"] = of_weights("bias", bias, in_type)
    if sinks is not None:
        arrays["sinks"] = jnp.asarray(sinks).astype(in_type)[None]
    if key_value_seq_lengths is not None:
        arrays["key_end"] = lengths("key_value_seq_lengths", key_value_seq_lengths, batch).astype(jnp.int32)
    text = rule_text(rule, scale)
    options = {"rule": text, "soft_cap": number("soft_cap", soft_cap)}
    options |= mask_options(queries, keys, causal, window_size, is_causal, local_window_size)
    names = statistic_names(return_stats, return_residual)
    spec = Spec(tuple(arrays), (), tuple(options.items()), batch, 1)
    shapes, types = [x.shape for x in arrays.values()], [str(x.dtype) for x in arrays.values()]
    _refuse(spec.text(shapes=shapes, types=types))

    def on_device(arrays: dict[str, Any]) -> dict[str, Any]:
        return bind(forward, varying_alike(arrays), ("output", *names), spec._replace(batch=arrays["q"].shape[0]))

    results = by_batches_and_heads(on_device, arrays, heads_are_alike="[" not in text)
    if without_batch:
        results = {name: x[0] for name, x in results.items()}
    if return_residual:
        return results["output"], results["lse"]
    if return_stats is False:
        return results["output"]
    return results["output"], Statistics(*(results.get(name) for name in STATISTICS))
