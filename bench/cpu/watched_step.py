#!/usr/bin/env python3
"""Cost of Monitor and QKClip: a training step with each of them at every step, over one without.

    bench/cpu/watched_step.py [--rounds 60] [--json]

Two blocks of width 512 on 1,024 tokens, float32, forward, backward and AdamW, on one thread. The kinds of steps take
turns in random order. A ratio is the median over the rounds. Each round divides the processor time of a step by that of
its unwatched step, because other processes disturb such ratios least.
"""

import functools
import statistics
import sys
from pathlib import Path

import torch
from torch import nn

import isentrope
from isentrope.models.projections import named

sys.path.append(str(Path(__file__).parents[2]))
from bench.harness import print_rounds, processor_times

FUNCTIONS = {
    "isentrope": functools.partial(isentrope.attention, causal=True),
    "torch": lambda *qkv: torch.nn.functional.scaled_dot_product_attention(*qkv, is_causal=True),
}
# The attention function of each watched step, and its watcher.
WATCHED = [("isentrope", "Monitor"), ("isentrope", "QKClip"), ("torch", "Monitor"), ("torch", "QKClip")]


class Block(nn.Module):
    def __init__(self, function, width=512, heads=8):
        super().__init__()
        self.function, self.heads, self.norms = FUNCTIONS[function], heads, nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(self.function(q, k, v).transpose(1, 2).flatten(2))
        return x + self.inner(self.norms[1](x))


def step_of(function, watcher, x):
    """Returns a function that takes one training step of a new model."""
    torch.manual_seed(0)
    model = nn.Sequential(Block(function), Block(function))
    optimizer, monitor = torch.optim.AdamW(model.parameters()), isentrope.Monitor(model)
    clip = isentrope.QKClip(model, projections=named(qkv="qkv", head_dim=64)) if watcher == "QKClip" else None

    def step():
        with monitor.watch(watcher == "Monitor"):
            loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        if clip is not None:
            clip.step()
        optimizer.zero_grad()

    return step


def measure(rounds):
    """One row for each watched step: function, watcher, ratio, the quartiles of the rounds' ratios, and the median seconds."""
    x = torch.randn(1, 1024, 512, generator=torch.Generator().manual_seed(0))
    kinds = [*((function, None) for function in FUNCTIONS), *WATCHED]
    times = processor_times({kind: step_of(*kind, x) for kind in kinds}, rounds)
    rows = []
    for function, watcher in WATCHED:
        ratios = [watched / plain for watched, plain in zip(times[function, watcher], times[function, None])]
        low, middle, high = statistics.quantiles(ratios, n=4)
        rows.append({"function": function, "watcher": watcher, "ratio": middle, "quartiles": [low, high],
                     "seconds": statistics.median(times[function, watcher])})  # fmt: skip
    return {"rounds": rounds, "rows": rows}


def table_of(measured):
    yield f"{'attention':<10} {'watched by':<11} {'over one without':>16} {'quartiles':>15}"
    for row in measured["rows"]:
        low, high = row["quartiles"]
        yield f"{row['function']:<10} {row['watcher']:<11} {row['ratio']:>16.3f}    {low:.3f} {high:.3f}"


if __name__ == "__main__":
    print_rounds(__doc__, measure, table_of, 60)
