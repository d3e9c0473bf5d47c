"""SSMax: attention whose scale has a learned slope in ln n for each head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from isentrope._core.checks import kind
from isentrope._core.options import KNOWN
from isentrope._core.values import check_bool, checked_number, is_integer, shown
from isentrope.functions import attention_rows, row_lengths

_MOST_HEADS, _LARGEST = 65536, 1e9  # limits of rules


class SSMax(nn.Module):
    """Module that computes attention with lambda = (s_h ln n + b_h) / sqrt(d) and learned s and b.

    Source: Scalable-Softmax (Nakanishi 2025).

    Parameters: `s` and `b`, float32 [heads]. s = 0.43 is the value that the paper's training arrived at; with
    s = 1 / ln 512 the module starts as `entropy_invariant(base=512)`. Raises ValueError or TypeError.
    """

    def __init__(self, heads: int, s: float = 0.43, b: float = 0.0, learn_b: bool = False) -> None:
        super().__init__()
        if not is_integer(heads):
            raise TypeError(f"[SSMax] heads must be an integer; got {shown(heads)}")
        if not 1 <= heads <= _MOST_HEADS:
            raise ValueError(f"[SSMax] heads must be at least 1 and at most {_MOST_HEADS}; got {shown(heads)}")
        check_bool("SSMax", "learn_b", learn_b)
        for name, number in (("s", s), ("b", b)):
            if not abs(checked_number("SSMax", name, number)) <= _LARGEST:
                raise ValueError(f"[SSMax] {name} must be at least {-_LARGEST:g} and at most {_LARGEST:g}; got {number}")
        self.s = nn.Parameter(torch.full((heads,), float(s)))
        self.b = nn.Parameter(torch.full((heads,), float(b)), requires_grad=learn_b)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        """Computes `attention_rows` with the learned scale; q: [batch, heads, queries, dim]. Options are as there.

        Raises ValueError if q does not have the module's number of heads.
        """
        if not isinstance(q, Tensor) or q.is_nested or q.dim() != 4 or q.shape[1] != self.s.shape[0]:
            raise ValueError(f"[SSMax] q must be a dense tensor [batch, {self.s.shape[0]} heads, queries, dim]; got {kind(q)}")
        n = row_lengths(q, k, **{name: x for name, x in options.items() if name in KNOWN["row_lengths"]})
        log_n = n.clamp(min=1).log()  # ln n is not defined for a row without keys, and not needed
        lambda_ = (self.s[:, None] * log_n + self.b[:, None]) / q.shape[-1] ** 0.5
        return attention_rows(q, k, v, lambda_, **options)

    def extra_repr(self) -> str:
        return f"heads={self.s.shape[0]}"
