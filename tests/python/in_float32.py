"""Gradients in float32 for any kernels, because ranks sum them."""

from __future__ import annotations

import torch
from torch import Tensor

from isentrope._core.call import call_of
from isentrope._core.library import CHECKED, LSE


def are_those_before_rounding(q: Tensor, k: Tensor, v: Tensor) -> None:
    call = call_of(q, k, v, rule="log_length", causal=True)
    output, statistics, _ = CHECKED.attention(*call, LSE)
    narrow, wide = (
        CHECKED.attention_backward(*call, LSE, output, statistics, output, statistics, False, False, False, in_float32)[:3]
        for in_float32 in (False, True)
    )
    for a, b in zip(narrow, wide):
        assert (a.dtype, b.dtype) == (q.dtype, torch.float32)
        assert torch.equal(a, b.to(q.dtype)) and not torch.equal(a.float(), b)
