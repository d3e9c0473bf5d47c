"""AttentionState: result of attention over some keys of a sequence, which can be merged with that of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from isentrope._core.checks import kind
from isentrope._core.library import STATISTICS
from isentrope.statistics import Statistics

_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# Functions that merge the numbers of two parts with their weights w; the library says which one a statistic uses.
_WAYS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "mean": lambda w_a, x, w_b, y: w_a * x + w_b * y,
    "squares": lambda w_a, x, w_b, y: w_a * w_a * x + w_b * w_b * y,
    "largest_part": lambda w_a, x, w_b, y: torch.maximum(w_a * x, w_b * y),
    "largest": lambda w_a, x, w_b, y: torch.maximum(x, y),
}
_MERGES = {statistic["name"]: _WAYS[statistic["merge"]] for statistic in STATISTICS if statistic["merge"] != "own"}


class AttentionState(NamedTuple):
    """Output and statistics over a part of the keys.

    `output` is a floating-point tensor [batch, heads, queries, value_dim], `statistics` those of its rows [batch, heads,
    queries]. They must have `lse`; all others are merged if both sides have them.
    """

    output: Tensor
    statistics: Statistics


def merge(a: AttentionState, b: AttentionState) -> AttentionState:
    """Returns the state over the keys of `a` and `b`, which must be disjoint.

    With w = softmax(lse_a, lse_b) and the mean logit E = lse - entropy:

        lse       = ln(e^lse_a + e^lse_b)               output   = w_a output_a + w_b output_b
        entropy   = w_a H_a + w_b H_b - sum w ln w      variance = w_a V_a + w_b V_b + w_a w_b (E_a - E_b)^2
        collision = w_a^2 C_a + w_b^2 C_b               support, max_logit: sum and largest
        max_probability = max(w_a P_a, w_b P_b)

    Exactly commutative; associative up to rounding; rows without keys change nothing. It consists of torch's own
    operators, so it has gradients of every order and runs on every device. `lambda_` is kept if both sides have it.

    Compute states without `sinks`, and multiply the merged output by sigmoid(lse - sink).

    Raises TypeError if a side is not a state of dense tensors. Raises ValueError if a side has no lse, if it has
    variance without entropy, or if the shapes differ.
    """
    for name, state in (("a", a), ("b", b)):
        require_state(name, state)
        for part, tensor in (("output", state.output), *state.statistics._asdict().items()):
            if tensor is not None and tensor.device != (device := a.output.device):
                raise ValueError(f"[merge] {name} must have its {part} on {device}, as the other tensors; got {tensor.device}")
    x, y = a.statistics, b.statistics
    if x.lse is None or y.lse is None:
        raise ValueError("[merge] a and b must have statistics with lse; got a side without")
    if any(s.variance is not None and s.entropy is None for s in (x, y)):
        raise ValueError("[merge] a and b must have entropy where they have variance; got a side without")
    if a.output.shape != b.output.shape or x.lse.shape != y.lse.shape:
        raise ValueError(
            f"[merge] b must have the shape of a, {tuple(a.output.shape)}; got {tuple(b.output.shape)}"
        )
    lse, w_a, w_b = _weights(x.lse, y.lse)
    # A side without weight beside one with weight, whose numbers are NaN if all its logits are -inf.
    without_a = (x.lse == -torch.inf) & (y.lse > -torch.inf)
    without_b = (y.lse == -torch.inf) & (x.lse > -torch.inf)
    from_a = torch.where(without_a[..., None], 0, a.output)
    from_b = torch.where(without_b[..., None], 0, b.output)
    output = (w_a[..., None] * from_a + w_b[..., None] * from_b).to(a.output.dtype)
    both = {name for name in Statistics._fields if None not in (getattr(x, name), getattr(y, name))}
    merged: dict[str, Tensor] = {"lse": lse}
    if "support" in both:
        merged["support"] = x.support + y.support
    for name, how in _MERGES.items():
        if name in both:
            from_a, from_b = getattr(x, name), getattr(y, name)
            if how is not _WAYS["largest"]:
                from_a, from_b = torch.where(without_a, 0, from_a), torch.where(without_b, 0, from_b)
            merged[name] = how(w_a, from_a, w_b, from_b)
    if "entropy" in both:
        merged["entropy"] = merged["entropy"] + (_entropy_of(w_a) + _entropy_of(w_b))
    if "variance" in both:
        met = (w_a > 0) & (w_b > 0)
        gap = torch.where(met, x.lse - x.entropy, 0) - torch.where(met, y.lse - y.entropy, 0)
        merged["variance"] = merged["variance"] + w_a * w_b * gap * gap
    return AttentionState(output, Statistics(**merged))


def require_state(name: str, state: Any) -> None:
    """Raises TypeError unless the state consists of dense tensors."""
    if not isinstance(state, AttentionState) or not isinstance(state.statistics, Statistics):
        raise TypeError(f"[merge] {name} must be an AttentionState with Statistics; got {kind(state)}")
    for part, tensor in (("output", state.output), *state.statistics._asdict().items()):
        if tensor is None and part != "output":
            continue
        dense = isinstance(tensor, Tensor) and not tensor.is_nested and tensor.layout is torch.strided
        if not (dense and (part == "support" or tensor.dtype in _DTYPES)):
            raise TypeError(f"[merge] {name} must have a dense {part} of floating point numbers; got {kind(tensor)}")


def _entropy_of(share: Tensor) -> Tensor:
    """Returns -w ln w, with gradient 0 at w = 0, where its slope is infinite."""
    return torch.special.entr(torch.where(share > 0, share, torch.ones_like(share)))


def _weights(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the lse of both, and the weight of each. If both are empty the weights are 0, not NaN; NaN in one is in all."""
    top = torch.maximum(a, b).detach()
    top = torch.where(top == -torch.inf, torch.zeros_like(top), top)
    e_a, e_b = (a - top).exp(), (b - top).exp()
    total = e_a + e_b
    some = total != 0
    safe = torch.where(some, total, torch.ones_like(total))
    lse = torch.where(some, top + safe.log(), torch.full_like(top, -torch.inf))
    return lse, e_a / safe, e_b / safe
