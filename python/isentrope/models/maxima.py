"""Gathers the largest logit of each head of the attention module that is running, on the device and in compiled code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from isentrope._core.call import Call
from isentrope._core.observers import running


class Maxima:
    """Largest logit of each head of one module, over all its calls since `reset`.

    A second call on the same input, as activation checkpointing makes it, changes nothing.
    """

    def __init__(self, heads: int, like: Tensor, first_head: Callable[[int], int]) -> None:
        """first_head: maps the number of heads of a call to the index of its first head, for ranks that have a part of them."""
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        self.largest = torch.full((heads,), -torch.inf, dtype=dtype, device=like.device)
        """[heads]; -inf for heads without a call."""
        self.called = False
        """Whether any call was read."""
        self.missed = False
        """Whether a forward pass since `reset` made no call that was read."""
        self.pending = False
        """Whether the running forward pass has made no call that was read."""
        self._first_head = first_head
        # Compiled code, and the CUDA graphs made of it, must update this tensor and not a copy.
        torch._dynamo.mark_static_address(self.largest)

    def reset(self) -> None:
        self.largest.fill_(-torch.inf)
        self.missed = False

    @torch.no_grad()
    def hear(self, call: Call, max_logit: Any, first_head: int | None) -> None:
        """Updates the maxima. max_logit: [batch, heads, rows]; a DTensor may be sharded by batch or heads.

        Raises ValueError for a soft-cap together with a bias, or with a rule that multiplies what the cap returns. Their
        largest logit tells none before the cap.
        """
        max_logit = _before_soft_cap(max_logit, call)
        self.called, self.pending = True, False
        local = max_logit.to_local() if hasattr(max_logit, "placements") else max_logit
        if local.numel() == 0:
            return
        largest = local.amax((0, 2)).to(self.largest)
        target = self.largest
        if (heads := largest.shape[0]) != target.shape[0]:
            target = target.narrow(0, self._first_head(heads) if first_head is None else first_head, heads)
        target.copy_(torch.maximum(target, largest))


_ATTRIBUTE = "_isentrope_maxima"


def watch(watched: Iterable[tuple[nn.Module, Maxima]]) -> list[RemovableHandle]:
    """Collects the maxima of forward passes in training mode. Returns the handles that end it.

    Compiled code has guards on the ids of hooks and on functions. With one id and one function for all modules, blocks
    that are compiled one by one share their graphs.
    """
    handles = []
    first = RemovableHandle.next_id
    for module, maxima in watched:
        setattr(module, _ATTRIBUTE, maxima)
        RemovableHandle.next_id = first
        handles.append(module.register_forward_pre_hook(_enter))
        handles.append(module.register_forward_hook(_leave, always_call=True))
    return handles


def is_watched(module: nn.Module, maxima: Maxima) -> bool:
    """Returns whether these are the maxima that the module's forward passes update."""
    return getattr(module, _ATTRIBUTE, None) is maxima


def unwatch(module: nn.Module, maxima: Maxima) -> None:
    """Ends the collection, unless other maxima have taken the place of these."""
    if is_watched(module, maxima):
        delattr(module, _ATTRIBUTE)


def _enter(module: nn.Module, _: Any) -> None:
    maxima = getattr(module, _ATTRIBUTE, None) if module.training else None
    if maxima is not None:
        maxima.pending = True
    running.maxima, running.outer = maxima, (running.maxima, running.outer)


def _leave(module: nn.Module, _: Any, output: Any) -> None:
    if running.outer is None:  # an earlier hook raised an error before `_enter`
        return
    maxima = running.maxima
    # A forward pass that ended with an error, as in checkpoints that stop early, has no output.
    if maxima is not None and maxima.pending and output is not None:
        maxima.missed = True
    running.maxima, running.outer = running.outer


def end_reading() -> None:
    """Forgets the running modules, for calls outside of every forward pass. Torch runs no hooks after KeyboardInterrupt."""
    running.maxima, running.outer = None, None


def _before_soft_cap(max_logit: Tensor, call: Call) -> Tensor:
    """Returns c artanh(z / c) of z = c tanh(s / c). In float32 s is exact to 1 % up to 8 c; from 8.7 c on z rounds to c."""
    cap = call.soft_cap if call.compiled_soft_cap is None else call.compiled_soft_cap
    if isinstance(cap, (int, float)) and cap == 0:
        return max_logit
    if call.bias is not None:
        raise ValueError("[QKClip] a call with a soft-cap must have no bias or float mask; got both: pass a boolean mask")
    if any("post_cap" in rule or ("xai_temperature" in rule and "pre_cap" not in rule) for rule in call.rule.split("*")):
        raise ValueError(f"[QKClip] a call with a soft-cap must have a rule that multiplies before the cap; got {call.rule}")
    limit = 1 - torch.finfo(max_logit.dtype).eps / 2
    before = cap * (max_logit / cap).clamp(-limit, limit).atanh()
    # -inf marks a row without keys, and a cap in a tensor may be 0.
    return torch.where(max_logit.isfinite() & before.isfinite(), before.to(max_logit.dtype), max_logit)
