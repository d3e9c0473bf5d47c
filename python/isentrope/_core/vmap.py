"""Batching of the operators, for torch.func.vmap."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isentrope._core.library import OPS


def one_by_one(operator: Any) -> Any:
    """Returns a batching rule that calls the operator once for each sample, because a call is long enough."""

    def rule(info: Any, in_dims: tuple, *args: Any) -> tuple:
        def sample(index: int, values: Any = args, dims: Any = in_dims) -> Any:
            if isinstance(values, tuple):
                return tuple(sample(index, *pair) for pair in zip(values, dims, strict=True))
            return values if dims is None else values.select(dims, index)

        results = [operator(*sample(index)) for index in range(info.batch_size)]
        if isinstance(results[0], Tensor):
            return torch.stack(results), 0
        return tuple(torch.stack(column) for column in zip(*results)), (0,) * len(results[0])

    return rule


for _name in ("attention", "attention_backward", "decode", "decode_codes", "quantize", "row_lengths"):
    torch.library.register_vmap(f"isentrope::{_name}", one_by_one(getattr(OPS, _name).default))
