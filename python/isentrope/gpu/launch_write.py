"""Writes new keys and values into the pages of a cache on a device."""

from __future__ import annotations

import triton
from torch import Tensor

from isentrope.gpu.dispatch import IN_ORDER, launch
from isentrope.gpu.kernels.write import write_kernel


def write_cache(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    """Implements isentrope::write_cache. Slots are not read before the launch: those past the cache are not written."""
    pages, kv_heads, page_size, _ = k_cache.shape
    tokens = k.shape[2]
    for name, x, shape in (
        ("k", k, (1, kv_heads, tokens, k_cache.shape[3])), ("v", v, (1, kv_heads, tokens, v_cache.shape[3])),
        ("v_cache", v_cache, (pages, kv_heads, page_size, v_cache.shape[3])), ("slot_mapping", slots, (tokens,)),
    ):  # fmt: skip
        if tuple(x.shape) != shape:
            raise ValueError(f"[write_cache] {name} must have shape {list(shape)}; got {list(x.shape)}")
    for name, x in (("v", v), ("k_cache", k_cache), ("v_cache", v_cache)):
        if x.dtype != k.dtype or x.device != k.device:
            raise ValueError(f"[write_cache] {name} must be {k.dtype} on {k.device}, as k is; got {x.dtype} on {x.device}")
    slots = slots.contiguous()
    for rows, cache in ((k, k_cache), (v, v_cache)):
        if rows.numel() == 0:
            continue
        named = {"rows": rows, "cache": cache, "slots": slots, "pages": pages, "page_size": page_size, "columns": rows.shape[3]}
        named |= dict(zip(("stride_rh", "stride_rt", "stride_rd"), rows.stride()[1:]))
        named |= dict(zip(("stride_cp", "stride_ch", "stride_cn", "stride_cd"), cache.stride()))
        constants = {"COLUMNS": triton.next_power_of_2(rows.shape[3]), "num_warps": 1}
        launch(write_kernel, (tokens, kv_heads, 1), IN_ORDER[write_kernel.fn](named), constants)
