#!/usr/bin/env python3
"""Cost of Monitor and QKClip: a training step with each of them at every step, over one without.

    bench/watched_step.py [--rounds 30] [--json]

Two blocks of width 512 on 1,024 tokens, float32, forward, backward and AdamW, on one thread. The three kinds of steps take turns in
random order. Ratios are those of medians of processor time, which other processes on the machine disturb least.
"""

import argparse
import json
import random
import statistics
import time

import torch
from torch import nn

import isentrope
from isentrope.models.projections import named


class Block(nn.Module):
    def __init__(self, width=512, heads=8):
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(isentrope.attention(q, k, v, causal=True).transpose(1, 2).flatten(2))
        return x + self.inner(self.norms[1](x))


def step_of(kind, x):
    """Returns a function that takes one training step of a new model."""
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block())
    optimizer, monitor = torch.optim.AdamW(model.parameters()), isentrope.Monitor(model)
    clip = isentrope.QKClip(model, projections=named(qkv="qkv", head_dim=64)) if kind == "QKClip" else None

    def step():
        with monitor.watch(kind == "Monitor"):
            loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        if clip is not None:
            clip.step()
        optimizer.zero_grad()

    return step


def measure(rounds):
    x = torch.randn(1, 1024, 512, generator=torch.Generator().manual_seed(0))
    steps = {kind: step_of(kind, x) for kind in ("neither", "Monitor", "QKClip")}
    times = {kind: [] for kind in steps}
    order, generator = list(steps), random.Random(0)
    for round_ in range(rounds + 1):
        generator.shuffle(order)
        for kind in order:
            begin = time.process_time()
            steps[kind]()
            if round_ > 0:  # the first round warms up
                times[kind].append(time.process_time() - begin)
    base = statistics.median(times["neither"])
    return [
        {"step": kind, "ratio": statistics.median(found) / base, "quartiles": [q / base for q in statistics.quantiles(found)]}
        for kind, found in times.items()
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="steps of each kind (30)")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure(arguments.rounds)
    if arguments.json:
        print(json.dumps(rows, indent=1))
    else:
        print("step      over one without   quartiles")
        for row in rows:
            print(f"{row['step']:8}  {row['ratio']:16.3f}   {row['quartiles'][0]:.2f} to {row['quartiles'][2]:.2f}")
