"""isentrope behind `torch.nn.functional.scaled_dot_product_attention`, where somebody asks for it.

    with isentrope.sdpa.activate("entropy_invariant(base=512)"):
        model(tokens)
"""

from __future__ import annotations

from types import TracebackType

import torch
from torch import Tensor

from isentrope._operators import OPS
from isentrope.rules import ScaleRule, rule_text
from isentrope.statistics import LSE

_FORWARD = "_scaled_dot_product_flash_attention_for_cpu"
_OURS = (torch.float32, torch.bfloat16, torch.float16)
_active: Activation | None = None


class Activation:
    """Ends with `remove()`, or with the `with` block it opens."""

    def __init__(self, library: torch.library.Library) -> None:
        self._library = library

    def remove(self) -> None:
        """Gives torch its own kernels back. Once is enough."""
        global _active
        if _active is self:
            self._library._destroy()
            _active = None

    def __enter__(self) -> Activation:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()


def activate(rule: str | ScaleRule = "standard") -> Activation:
    """Replaces the fused CPU kernels of `scaled_dot_product_attention`, forward and backward, in this process.

    Whatever torch sends to them follows: the function itself, `nn.MultiheadAttention` and the transformer layers
    in training, compiled models. `rule` then gives the scale, with the caller's `scale` in the place of
    1/sqrt(d), and a mask hides keys from n. What torch sends elsewhere (dropout, float64, a mask that needs
    gradients) stays torch's own.

    Raises RuntimeError when it is active already, and ValueError for a rule that is none.
    """
    global _active
    if _active is not None:
        raise RuntimeError("[sdpa.activate] isentrope must not be active already; got a second activation")
    text = OPS.rule_text(rule_text(rule, None))
    library = torch.library.Library("aten", "IMPL")

    def forward(q, k, v, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
        if q.dtype not in _OURS:
            return _dense(q, k, v, is_causal, attn_mask, scale)
        output, statistics, _ = OPS.attention(*_call(text, q, k, v, is_causal, attn_mask, scale), LSE)
        # Compiled graphs rely on torch's own layouts: heads inside rows, for both results.
        return _heads_inside(output), _heads_inside(statistics[0])

    def backward(grad_out, q, k, v, out, lse, dropout_p, is_causal, *, attn_mask=None, scale=None):
        if q.dtype not in _OURS:
            return _dense_backward(grad_out, q, k, v, out, is_causal, attn_mask, scale)
        call = _call(text, q, k, v, is_causal, attn_mask, scale)
        found = OPS.attention_backward(
            *call, LSE, out, lse.contiguous()[None], grad_out, None, False, False, False
        )
        return tuple(_heads_inside(gradient) for gradient in found[:3])

    library.impl(_FORWARD, forward, "CPU", allow_override=True)
    library.impl(f"{_FORWARD}_backward", backward, "CPU", allow_override=True)
    _active = Activation(library)
    return _active


def _call(rule, q, k, v, is_causal, attn_mask, scale) -> tuple:
    mask = bias = None
    if attn_mask is not None:
        # Boolean masks arrive as 0 and -inf.
        bias = attn_mask.float().expand(*q.shape[:3], k.shape[2])
        mask = bias > -torch.inf
    text = rule_text(rule, scale)
    alignment = 1 if is_causal else 0
    return (q, k, v, None, mask, bias, *(None,) * 5, text, alignment, -1, -1, 0, 0, 0, 0.0)


def _heads_inside(tensor: Tensor) -> Tensor:
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


def _dense_weights(q, k, is_causal, attn_mask, scale) -> tuple[Tensor, Tensor]:
    """What torch's kernel computes, for the types that ours does not take: lse and weights of every row."""
    z = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(-2, -1) * scale
    if is_causal:
        z = z.masked_fill(torch.ones(z.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    if attn_mask is not None:
        z = z + attn_mask
    lse = z.logsumexp(-1)
    return lse, (z - lse[..., None].nan_to_num(neginf=0)).exp()


def _dense(q, k, v, is_causal, attn_mask, scale) -> tuple[Tensor, Tensor]:
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    lse, p = _dense_weights(q, k, is_causal, attn_mask, scale)
    return _heads_inside(p @ v.repeat_interleave(q.shape[1] // v.shape[1], 1)), _heads_inside(lse)


def _dense_backward(grad_out, q, k, v, out, is_causal, attn_mask, scale) -> tuple[Tensor, ...]:
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    group = q.shape[1] // k.shape[1]
    _, p = _dense_weights(q, k, is_causal, attn_mask, scale)
    d_p = grad_out @ v.repeat_interleave(group, 1).transpose(-2, -1)
    d_z = p * (d_p - (grad_out * out).sum(-1, keepdim=True)) * scale
    dk, dv = (x.unflatten(1, (-1, group)).sum(2) for x in (d_z.transpose(-2, -1) @ q, p.transpose(-2, -1) @ grad_out))
    return tuple(_heads_inside(x) for x in (d_z @ k.repeat_interleave(group, 1), dk, dv))
