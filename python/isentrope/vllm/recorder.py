"""Records the statistics of each token of each request, in a worker of vLLM; with ISENTROPE_METRICS=1 their totals."""

from __future__ import annotations

import functools
import os
import re
from typing import Any, NamedTuple

import torch
from torch import Tensor

from isentrope._core.call import Call
from isentrope.statistics import statistic_names, unpack, wanted_bits

_NAMES = statistic_names(("lse", "entropy", "max_logit", "lambda_"))
_BITS = wanted_bits(_NAMES)


class Step(NamedTuple):
    """Requests of one step, as operators over a cache take them: their pages, numbers of keys and beginnings of queries."""

    table: Tensor
    used: Tensor
    starts: Tensor

    @classmethod
    def of(cls, metadata: Any, page_size: int) -> Step:
        """Returns the step of a group of layers, which share its metadata."""
        if not hasattr(metadata, "isentrope_step"):
            pages = -(-metadata.max_seq_len // page_size)
            used = metadata.seq_lens.long()
            metadata.isentrope_step = cls(metadata.block_table[: len(used), :pages], used, metadata.query_start_loc.long())
        return metadata.isentrope_step

    def positions(self) -> Tensor:
        """Returns the position of each query in its request."""
        first = (self.used - self.starts[1:]).repeat_interleave(self.starts.diff())
        return first + torch.arange(len(first), device=first.device)


class Recorder:
    """Readings by request: positions of tokens, and for each layer [3, tokens] of entropy, largest logit and first weight."""

    def __init__(self, runner: Any) -> None:
        self.runner = runner
        self.parts: dict[str, list[tuple[Tensor, Tensor]]] = {}
        self.layers: dict[str, Tensor] = {}
        self.requests: list[str] = []
        self.positions, self.counts = torch.empty(0), torch.empty(0)

    def add(self, layer: str, step: Step, readings: Tensor) -> None:
        if layer in self.layers:
            self.end_step()
        if not self.layers:
            self.requests = list(self.runner.input_batch.req_ids)
            self.positions, self.counts = step.positions(), step.starts.diff()
        self.layers[layer] = readings

    def end_step(self) -> None:
        """Hands the readings of all layers to the requests of the step."""
        if not self.layers:
            return
        readings = torch.stack(list(self.layers.values()))
        counts = self.counts.tolist()
        pieces = zip(self.requests, self.positions.split(counts), readings.split(counts, dim=2))
        for request, positions, piece in pieces:
            self.parts.setdefault(request, []).append((positions, piece))
        self.layers = {}

    def take(self) -> dict[str, tuple[list[int], bytes]]:
        """Returns shape and float32 bytes of [3, tokens, layers] for each request, and forgets them.

        A token is at its position. Tokens that a prefix cache held are NaN; one that was computed again counts as computed last.
        """
        self.end_step()
        found = {}
        for request, parts in self.parts.items():
            length = 1 + max(int(positions[-1]) for positions, _ in parts if len(positions))
            whole = torch.full((3, length, len(parts[0][1])), float("nan"))
            for positions, piece in parts:
                whole[:, positions] = piece.permute(1, 2, 0)
            # vLLM appends eight random digits to the request's id.
            found[re.sub("-[0-9a-f]{8}$", "", request)] = (list(whole.shape), whole.numpy().tobytes())
        self.parts = {}
        return found


_recorder: Recorder | None = None
_METRICS = os.environ.get("ISENTROPE_METRICS", "0") == "1"


def start(worker: Any, on: bool = True) -> None:
    """Starts or ends recording in a worker, and forgets earlier readings."""
    global _recorder
    _recorder = Recorder(worker.model_runner) if on else None


def take(worker: Any) -> dict[str, tuple[list[int], bytes]]:
    """Returns the worker's readings; see Recorder.take."""
    return {} if _recorder is None else _recorder.take()


def wanted() -> int:
    """Returns the bits of the statistics that a layer must compute."""
    return _BITS if _METRICS or _recorder is not None else 0


def add(layer: str, step: Step, call: Call, result: tuple[Tensor, ...]) -> None:
    """Adds the results of one layer to the totals and to the requests: means over heads, and the largest logit of any head."""
    s = unpack(_NAMES, _BITS, *result[1:])
    entropy, first = s.entropy[0].mean(0), _first_weight(step, call, s.lse[0], s.lambda_[0]).mean(0)
    if _METRICS:
        for counter, total in zip(_counters(), (len(entropy), float(entropy.sum()), float(first.sum())), strict=True):
            counter.labels(layer).inc(total)
    if _recorder is not None:
        _recorder.add(layer, step, torch.stack([entropy, s.max_logit[0].amax(0), first]))


@functools.cache
def _counters() -> tuple[Any, ...]:
    """Returns this process's totals. With PROMETHEUS_MULTIPROC_DIR, the page of vLLM's server adds those of all processes."""
    from prometheus_client import Counter

    named = {
        "tokens": "Tokens whose attention was computed",
        "entropy_nats": "Sum over tokens of the mean entropy of the heads",
        "first_weight": "Sum over tokens of the heads' mean weight of the first key",
    }
    return tuple(Counter(f"isentrope:{name}", words, ["layer"]) for name, words in named.items())


def _first_weight(step: Step, call: Call, lse: Tensor, lambda_: Tensor) -> Tensor:
    """Returns the weight of the first key of each row, [heads, tokens]; 0 outside of a window.

    Products with the first keys of all requests take a tenth of the time of a product for each row.
    """
    q, keys = call.q[0].float(), call.k[step.table[:, 0].long(), :, 0].float()  # keys: [requests, kv_heads, dim]
    keys = keys.repeat_interleave(len(q) // keys.shape[1], 1).permute(1, 2, 0)
    request = torch.arange(len(step.used), device=q.device).repeat_interleave(step.starts.diff())
    logits = torch.bmm(q, keys).gather(2, request.expand(len(q), -1)[:, :, None])[:, :, 0] * lambda_
    if call.soft_cap > 0:
        logits = call.soft_cap * torch.tanh(logits / call.soft_cap)
    if call.bias is not None:
        logits = logits + call.bias[0, :, :, 0]
    if call.sinks is not None:
        lse = torch.logaddexp(lse, call.sinks[:, None])
    weights = torch.exp(logits - lse)
    return weights if call.window_left < 0 else torch.where(step.positions() <= call.window_left, weights, 0.0)
