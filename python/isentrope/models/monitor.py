"""Watches a model while it trains: heads that collapse onto one key, and logits that explode.

With transformers' Trainer:

    trainer.add_callback(isentrope.models.monitor.callback(every=100))        # logs attention/entropy and the rest

In a training loop:

    monitor = isentrope.Monitor(model)
    for step, batch in enumerate(batches):
        with monitor.watch(step % 100 == 0):
            loss = model(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if monitor.latest:
            print(step, monitor.latest.summary())
"""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from isentrope._core.call import Call
from isentrope._core.library import STATISTICS
from isentrope._core.observers import Listener, listeners, received
from isentrope._core.values import check_count, checked_number
from isentrope.models.heads import padded, where
from isentrope.sdpa import observed
from isentrope.statistics import Statistics

# Minimum number of keys of a row that is read: short rows have little entropy whatever a head does.
LEAST_KEYS = 8
# Statistics that the library lists for logs, and whether these have the mean over rows or the largest of any row.
LOGGED = {statistic["name"]: statistic["logged"] for statistic in STATISTICS if statistic["logged"]}

if TYPE_CHECKING:
    from isentrope._core.libraries import Listed as _Numbers
else:
    _Numbers = namedtuple("Reading", [*LOGGED, "spread", "broken", "names"])


class Reading(_Numbers):
    """Readings of one step, each a float64 tensor [layers, heads].

    entropy: mean over rows, nats; spread: its standard deviation over rows; max_logit: largest of any row;
    max_probability: mean over rows, the mass of their largest key; broken: share of rows whose entropy is NaN, because a
    logit is NaN or infinite, and which the means leave out. NaN for heads without a row of at least 8 keys, and past a
    layer's last head. names: of the modules that called, one for each layer, in call order."""

    __slots__ = ()

    def collapsed(self, below: float = 0.05) -> list[tuple[int, int]]:
        """Returns (layer, head) of heads whose mean entropy is below the threshold: nearly all weight is on one key."""
        return where(self.entropy < below)

    def summary(self, below: float = 0.05) -> dict[str, float]:
        """Returns numbers for a log: mean and least entropy of a head, mean spread, collapsed heads, largest logit, the
        largest of the heads' mean max_probability, and the mean of broken. NaN if no row has a number."""
        others = (name for name in LOGGED if name != "entropy")
        return {
            "attention/entropy": self.entropy.nanmean().item(),
            "attention/least_entropy": -or_nan((-self.entropy).nan_to_num(-torch.inf).max()).item(),
            "attention/spread": self.spread.nanmean().item(),
            "attention/broken": self.broken.nanmean().item(),
            "attention/collapsed": float(len(self.collapsed(below))),
            **{f"attention/{name}": or_nan(getattr(self, name).nan_to_num(-torch.inf).max()).item() for name in others},
        }

    def heads(self) -> dict[str, float]:
        """Returns numbers of each head: "attention/layers.0.attend/head0/entropy", ".../max_logit" and
        ".../max_probability"."""
        return {
            f"attention/{row['module']}/head{row['head']}/{what}": row[what]
            for what in LOGGED
            for row in self.rows()
        }

    def rows(self) -> list[dict[str, Any]]:
        """Returns one row for each head: module, layer, head, and the numbers. Omits heads without a row of at least 8
        keys."""
        columns = [numbers.tolist() for numbers in self[:-1]]
        return [
            {"module": name, "layer": layer, "head": head, **dict(zip(self._fields, numbers))}
            for layer, (name, *heads) in enumerate(zip(self.names, *columns))
            for head, numbers in enumerate(zip(*heads))
            if not math.isnan(numbers[-1])
        ]


class Monitor:
    """Reads the statistics of each module's first attention call: calls of isentrope's functions and of torch's
    `scaled_dot_product_attention`, which `nn.MultiheadAttention` uses with need_weights=False, and transformers with
    attn_implementation="sdpa".

    It does not change results. Steps that are not watched cost nothing; in watched steps, torch's calls are computed a
    second time for their statistics. Compiled code and the fast path of torch's layers in evaluation mode cannot be read.
    """

    def __init__(self, model: nn.Module, received: bool = False) -> None:
        """model: on any device. received: whether to read the weight that each key receives, too, which takes more than
        half as long as the attention itself. Raises TypeError if the model is not a module."""
        if not isinstance(model, nn.Module):
            raise TypeError(f"[Monitor] model must be a torch.nn.Module; got {type(model).__name__}")
        self._model = model
        self.latest: Reading | None = None
        """Reading of the last `watch` block; None before the first and after one that was not watched."""
        self.received: dict[str, Tensor] = {}
        """Weight that each key receives in that block by module, [heads, keys], its mean over the batch."""
        self._receives = received

    @contextmanager
    def watch(self, watched: bool = True) -> Iterator[None]:
        """Reads the first call of every module inside the block, because gradient checkpointing calls modules again in the
        backward pass. watched: False leaves the block alone, at no cost. With DTensors every rank must watch the same steps.

        Raises ValueError at the end of a block in which the model made no call that can be read.
        """
        self.latest, self.received = None, {}
        if not watched:
            yield
            return
        by_layer: dict[str, Statistics] = {}
        running = [_STRANGER]

        def hear(call: Call, statistics: Statistics) -> None:
            if (name := running[-1]) not in (_STRANGER, *by_layer):
                by_layer[name] = statistics
                if self._receives:
                    self.received[name] = received(call, statistics.lse).mean(0)

        with _names_in(running, self._model), listeners.having(Listener((*LOGGED, "support", "lse"), hear)):
            yield
        if not by_layer:
            raise ValueError(
                "[Monitor.watch] the model must call isentrope's attention or torch's scaled_dot_product_attention, outside of "
                'compiled code; got neither: load transformers models with attn_implementation="isentrope" or "sdpa"'
            )
        self.latest = _reading(by_layer)


_STRANGER = "\0"  # a module of another model, or no module


@contextmanager
def _names_in(running: list[str], model: nn.Module) -> Iterator[None]:
    """Keeps the names of the modules whose forward is running in a list, innermost last; torch's function is observed."""
    names = {id(module): name for name, module in model.named_modules()}

    def enter(module: nn.Module, *_: Any) -> None:
        running.append(names.get(id(module), _STRANGER))

    def leave(*_: Any) -> None:
        running.pop()

    with ExitStack() as hooks:
        hooks.callback(register_module_forward_pre_hook(enter).remove)
        hooks.callback(register_module_forward_hook(leave, always_call=True).remove)
        hooks.callback(observed.leave)
        observed.observe()
        yield


@torch.no_grad()
def _reading(by_layer: dict[str, Statistics]) -> Reading:
    layers = padded([_of_heads(Statistics(*map(_whole, statistics))) for statistics in by_layer.values()])
    return Reading(*layers.transpose(0, 1).contiguous(), names=tuple(by_layer))


def _of_heads(statistics: Statistics) -> Tensor:
    """Returns [numbers, heads]: LOGGED, the deviation of entropy, and the share of rows without one."""
    counted = statistics.support >= LEAST_KEYS

    def rows(name: str, without: float) -> Tensor:
        return getattr(statistics, name).double().masked_fill(~counted, without).transpose(0, 1).flatten(1)

    found = [
        rows(name, torch.nan).nanmean(1) if way == "mean" else or_nan(rows(name, -torch.inf).amax(1)) for name, way in LOGGED.items()
    ]
    entropy = rows("entropy", torch.nan)
    spread = (entropy.square().nanmean(1) - entropy.nanmean(1).square()).clamp(min=0).sqrt()
    rows_of_head = counted.transpose(0, 1).flatten(1).sum(1)
    broken = (rows_of_head - (~entropy.isnan()).sum(1)).double() / rows_of_head
    return torch.stack([*found, spread, broken])


def _whole(statistic: Tensor | None) -> Tensor | None:
    """Returns the tensor of a DTensor, gathered from its ranks."""
    return statistic.full_tensor() if hasattr(statistic, "full_tensor") else statistic


def or_nan(largest: Tensor) -> Tensor:
    """Returns NaN in place of -inf, the largest of nothing."""
    return largest.masked_fill(largest == -torch.inf, torch.nan)


class _Steps:
    """Watches every `every`-th step of a trainer that reports the beginning and end of steps."""

    monitor: Monitor | None = None

    def __init__(self, every: int, log: Callable[[int, Reading], None] | None) -> None:
        self._every, self._log = every, log

    def _watch(self, model: nn.Module) -> None:
        self.monitor = Monitor(model)
        self._open: Any = None
        self._step = -1

    def _begin(self, step: int) -> None:
        # With gradient accumulation a framework begins, and may end, several batches of one step.
        if self._open is None and step % self._every == 0 and step != self._step:
            self._step, self._open = step, self.monitor.watch()
            self._open.__enter__()

    def _end(self) -> Reading | None:
        if self._open is None:
            return None
        watch, self._open = self._open, None
        watch.__exit__(None, None, None)
        if self._log is not None:
            self._log(self._step, self.monitor.latest)
        return self.monitor.latest


def callback(every: int = 100, below: float = 0.05, log: Callable[[int, Reading], None] | None = None) -> Any:
    """Returns a `TrainerCallback` of transformers that logs `Reading.summary(below)` of every `every`-th step.

    The numbers are in the trainer's log history. Reporters, as TensorBoard's, see them if this callback comes before
    theirs: `trainer.callback_handler.callbacks.insert(0, callback)`.

    log: also called with the step and the `Reading` of each watched step; `isentrope.models.monitor_logs` has some. Its
    `monitor.latest` is the last `Reading`, with every head by itself.

    Raises ValueError unless every >= 1, and after the first step if `Monitor` can read no call of the model.
    """
    from transformers import TrainerCallback

    _check("monitor.callback", every, below)

    class AttentionCallback(_Steps, TrainerCallback):
        _summary: dict[str, float] = {}

        def on_train_begin(self, args: Any, state: Any, control: Any, model: nn.Module, **_: Any) -> None:  # type: ignore[override]
            self._watch(model)

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._begin(state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if reading := self._end():
                self._summary = reading.summary(below)
                control.should_log = True

        def on_log(self, args: Any, state: Any, control: Any, logs: dict | None = None, **_: Any) -> None:
            if logs is not None and self._summary:
                logs.update(self._summary)
                if state.log_history:
                    state.log_history[-1].update(self._summary)
                self._summary = {}

    return AttentionCallback(every, log)


def lightning_callback(every: int = 100, below: float = 0.05, log: Callable[[int, Reading], None] | None = None) -> Any:
    """Returns a callback of Lightning that logs `Reading.summary(below)` of every `every`-th batch by `LightningModule.log_dict`.

    Arguments, errors and `monitor` are as in `callback`; steps are those of `trainer.global_step`.
    """
    try:
        from lightning.pytorch import Callback
    except ModuleNotFoundError:
        from pytorch_lightning import Callback

    _check("monitor.lightning_callback", every, below)

    class AttentionCallback(_Steps, Callback):
        def on_train_start(self, trainer: Any, pl_module: nn.Module) -> None:
            self._watch(pl_module)

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            self._begin(trainer.global_step)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if reading := self._end():
                pl_module.log_dict(reading.summary(below))

    return AttentionCallback(every, log)


def _check(function: str, every: int, below: float) -> None:
    check_count(function, "every", every, 1)
    checked_number(function, "below", below)
