"""`scaled_dot_product_attention` on GPUs, for `isentrope.sdpa`.

There torch chooses among several fused kernels, each with its own layout and backward pass. So calls are replaced
before it chooses and before autograd, and `isentrope.attention` computes them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from isentrope.sdpa.drop_in import is_taken, under_rule, warn_of_own

_NAME = "scaled_dot_product_attention"
_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_LARGEST_DIM = 256


def replace(library: torch.library.Library, rule: str, devices: Sequence[str] = ("CUDA", "XPU")) -> None:
    """Replaces torch's function on some devices by `isentrope.attention` under a rule."""
    # The composite implementation is the same on every device.
    own = torch.library.get_kernel(f"aten::{_NAME}", "CPU")

    def call(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
        passed = (q, k, v, attn_mask, dropout_p, is_causal)
        options = {"scale": scale, "enable_gqa": enable_gqa}
        wanted = rule != "standard" or all(x.dim() == 4 for x in (q, k, v))
        if not (wanted and is_taken(*passed) and max(q.shape[-1], v.shape[-1]) <= _LARGEST_DIM):
            warn_of_own(rule, q)
            return own.call_boxed(_KEYS, *passed, **options)
        return under_rule(rule, q, k, v, attn_mask, dropout_p=dropout_p, is_causal=is_causal, **options)

    for device in devices:
        for key in (device, f"Autograd{device}"):
            library.impl(_NAME, call, key, allow_override=True)

