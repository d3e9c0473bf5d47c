"""The eager attention, but for rows that see no key: their output is 0, as in fused kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

NAME = "eager_but_for_keyless_rows"


def attention_forward(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    key, value = (x.repeat_interleave(query.shape[1] // key.shape[1], 1) for x in (key, value))
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if attention_mask is None:
        return (scores.softmax(-1) @ value).transpose(1, 2), None
    keyless = (attention_mask <= torch.finfo(attention_mask.dtype).min / 2).all(-1, keepdim=True)
    weights = (scores + attention_mask).softmax(-1).masked_fill(keyless, 0)
    return (weights @ value).transpose(1, 2), None


AttentionInterface.register(NAME, attention_forward)
AttentionMaskInterface.register(NAME, eager_mask)
