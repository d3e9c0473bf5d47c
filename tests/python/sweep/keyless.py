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
    block_indices: Tensor | None = None, position_ids: Tensor | None = None, **_: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    if block_indices is not None:  # MiniMax M3 restricts the masks of "eager" and "sdpa" itself
        positions = position_ids.expand(query.shape[0], -1)
        attention_mask = module.indexer.build_block_mask(
            block_indices, attention_mask, key.shape[2], query.dtype, query.device, positions
        )
    key, value = (x.repeat_interleave(query.shape[1] // key.shape[1], 1) for x in (key, value))
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if attention_mask is None:
        return (scores.softmax(-1) @ value).transpose(1, 2), None
    keyless = (attention_mask <= torch.finfo(attention_mask.dtype).min / 2).all(-1, keepdim=True)
    weights = (scores + attention_mask).softmax(-1).masked_fill(keyless, 0)
    return (weights @ value).transpose(1, 2), None


AttentionInterface.register(NAME, attention_forward)
AttentionMaskInterface.register(NAME, eager_mask)
