"""What people watch while a model trains: heads that collapse onto one key, and logits that explode.

With transformers' Trainer:

    trainer.add_callback(isentrope.models.monitor.callback(every=100))        # logs attention/entropy and the rest

In a loop of one's own:

    monitor = isentrope.models.monitor.Monitor(model)
    for step, batch in enumerate(batches):
        with monitor.watch(step % 100 == 0):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if monitor.latest:
            print(step, monitor.latest.summary())
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from isentrope import hf

# Of the rows that see at least so many keys: short rows have little entropy whatever a head does.
LEAST_KEYS = 8


class Reading(NamedTuple):
    """One step. Each is float64 [layers, heads], NaN where no row sees 8 keys."""

    entropy: Tensor
    """Mean over rows, nats."""
    spread: Tensor
    """Standard deviation over rows."""
    max_logit: Tensor
    """Largest of any row."""

    def collapsed(self, below: float = 0.05) -> list[tuple[int, int]]:
        """(layer, head) whose mean entropy is below the threshold: nearly all the weight is on one key."""
        return [(layer, head) for layer, head in (self.entropy < below).nonzero().tolist()]

    def summary(self, below: float = 0.05) -> dict[str, float]:
        """What a log takes: mean and least entropy of a head, mean spread, collapsed heads, largest logit."""
        return {
            "attention/entropy": self.entropy.nanmean().item(),
            "attention/least_entropy": self.entropy.nan_to_num(torch.inf).min().item(),
            "attention/spread": self.spread.nanmean().item(),
            "attention/collapsed": float(len(self.collapsed(below))),
            "attention/max_logit": self.max_logit.nan_to_num(-torch.inf).max().item(),
        }


class Monitor:
    """Reads the attention of a transformers model that uses isentrope. A step that is not watched costs nothing.

    Raises ValueError when the model uses another attention.
    """

    def __init__(self, model: nn.Module) -> None:
        self._layers = {id(module): index for index, module in enumerate(hf.attentions(model))}
        self.latest: Reading | None = None

    @contextmanager
    def watch(self, watched: bool = True) -> Iterator[None]:
        """Reads the first forward pass of every layer inside the block; `latest` is None where nothing was watched."""
        self.latest = None
        if not watched:
            yield
            return
        with hf.record("entropy", "max_logit", "support") as records:
            yield
        # Gradient checkpointing runs a layer again in the backward pass.
        first = {self._layers[id(record.module)]: record for record in reversed(records)}
        if first:
            self.latest = _reading([first[layer].statistics for layer in sorted(first)])


@torch.no_grad()
def _reading(layers: list[Any]) -> Reading:
    entropy, spread, largest = [], [], []
    for statistics in layers:
        counted = statistics.support >= LEAST_KEYS
        values = statistics.entropy.detach().double().masked_fill(~counted, torch.nan).transpose(0, 1).flatten(1)
        entropy.append(values.nanmean(1))
        spread.append((values.square().nanmean(1) - values.nanmean(1).square()).clamp(min=0).sqrt())
        logits = statistics.max_logit.detach().double().masked_fill(~counted, -torch.inf)
        top = logits.transpose(0, 1).flatten(1).amax(1)
        largest.append(top.masked_fill(top == -torch.inf, torch.nan))
    return Reading(torch.stack(entropy), torch.stack(spread), torch.stack(largest))


def callback(every: int = 100, below: float = 0.05) -> Any:
    """A `TrainerCallback` that logs `Reading.summary(below)` of every `every`-th step.

    Its `monitor.latest` is the last `Reading`, with every head by itself.

    Raises ValueError unless every >= 1; at the start of training, when the model uses another attention.
    """
    from transformers import TrainerCallback

    if every < 1:
        raise ValueError(f"[monitor.callback] every must be at least 1; got {every}")

    class AttentionCallback(TrainerCallback):
        def __init__(self) -> None:
            self.monitor: Monitor | None = None
            self._open: Any = None
            self._found: dict[str, float] = {}

        def on_train_begin(self, args: Any, state: Any, control: Any, model: nn.Module, **_: Any) -> None:
            self.monitor = Monitor(model)

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % every == 0:
                self._open = self.monitor.watch()
                self._open.__enter__()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if self._open is None:
                return
            self._open.__exit__(None, None, None)
            self._open = None
            if self.monitor.latest:
                self._found = self.monitor.latest.summary(below)
                control.should_log = True

        def on_log(self, args: Any, state: Any, control: Any, logs: dict | None = None, **_: Any) -> None:
            if logs is not None and self._found:
                logs.update(self._found)
                if state.log_history:
                    state.log_history[-1].update(self._found)
                self._found = {}

    return AttentionCallback()
