"""`scaled_dot_product_attention` on GPUs, for `isentrope.sdpa`.

There torch chooses among several fused kernels, each with a layout and a backward pass of its own. So calls are taken
before it chooses, where gradients are still to come: what runs instead is `isentrope.attention`, as a user calls it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from isentrope.functions import attention

_NAME = "scaled_dot_product_attention"
_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_LARGEST_DIM = 256


def replace(library: torch.library.Library, rule: str, devices: Sequence[str] = ("CUDA", "XPU")) -> None:
    """Puts `isentrope.attention` under a rule in the place of torch's function on some devices."""
    # Composed of other operators, it is the same on every device.
    own = torch.library.get_kernel(f"aten::{_NAME}", "CPU")

    def call(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
        if not _is_ours(q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa):
            passed = (q, k, v, attn_mask, dropout_p, is_causal)
            return own.call_boxed(_KEYS, *passed, scale=scale, enable_gqa=enable_gqa)
        bias = None
        if attn_mask is not None and attn_mask.is_floating_point():
            # -inf hides a key from n too: boolean masks are often given as 0 and -inf.
            bias, attn_mask = attn_mask, attn_mask > -torch.inf
        return attention(q, k, v, rule=rule, scale=scale, is_causal=is_causal, attn_mask=attn_mask, bias=bias, dropout_p=dropout_p)

    for device in devices:
        for key in (device, f"Autograd{device}"):
            library.impl(_NAME, call, key, allow_override=True)


def _is_ours(q, k, v, mask, dropout_p, is_causal, scale, grouped) -> bool:
    """Whether the operator takes the call. What it does not is torch's own affair, errors included."""
    tensors = (q, k, v)
    if any(x.dim() != 4 or x.dtype != q.dtype or max(x.shape[3], 1) > _LARGEST_DIM for x in tensors):
        return False
    if q.dtype not in _DTYPES or not 0 <= dropout_p < 1:
        return False
    if mask is not None and (is_causal or mask.dim() > 4):
        return False
    heads = q.shape[1] % max(k.shape[1], 1) == 0 if grouped else q.shape[1] == k.shape[1]
    return heads and k.shape[:3] == v.shape[:3] and q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3]
