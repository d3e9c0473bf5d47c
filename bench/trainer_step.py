#!/usr/bin/env python3
"""Times a training step of the laboratory against the same model in Python with torch's own attention.

    bench/trainer_step.py                  # alternates both, prints seconds per step and their ratio
    bench/trainer_step.py --positions t5   # with a learned bias in place of rotary positions
    bench/trainer_step.py --python-only    # one run in Python

Model, batch, optimiser and threads are the same. Each run is a separate process and includes the first step and the
drawing of data. Run it on an otherwise idle machine.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F

VOCABULARY = 257
MASK = 256


# T5's bias by distance, one number for each head and bucket; the largest distance is the training length.
BUCKETS = 32


def buckets_of(length, largest):
    distance = torch.arange(length) - torch.arange(length).unsqueeze(1)
    exact = BUCKETS // 4
    far = distance.abs().clamp(min=1)
    more = (torch.log(far / exact) / math.log(largest / exact) * (BUCKETS // 2 - exact)).long()
    bucket = torch.where(far < exact, distance.abs(), (exact + more).clamp(max=BUCKETS // 2 - 1))
    return bucket + (distance > 0) * (BUCKETS // 2)


class Layer(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.attention_norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)
        self.feed_forward_norm = torch.nn.LayerNorm(width)

    def forward(self, h, table, bias):
        q, k, v = self.qkv(h).unflatten(-1, (3, self.heads, -1)).unbind(2)
        if table is not None:
            q, k = rotate(q, table), rotate(k, table)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        attention = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        h = self.attention_norm(h + self.out(attention.transpose(1, 2).flatten(2)))
        return self.feed_forward_norm(h + self.down(F.gelu(self.up(h))))


class Roformer(torch.nn.Module):
    def __init__(self, layers, width, heads, positions, length):
        super().__init__()
        self.dim = width // heads
        self.embedding = torch.nn.Embedding(VOCABULARY, width)
        self.embedding_norm = torch.nn.LayerNorm(width)
        self.positions = torch.nn.Embedding(BUCKETS, heads) if positions == "t5" else None
        self.length = length
        self.layers = torch.nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.output_bias = torch.nn.Parameter(torch.zeros(VOCABULARY))
        torch.nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, tokens, positions):
        length = tokens.shape[1]
        table, bias = None, None
        if self.positions is None:
            table = rotary_table(length, self.dim)
        else:
            bias = self.positions(buckets_of(length, self.length)).permute(2, 0, 1).unsqueeze(0)
        h = self.embedding_norm(self.embedding(tokens))
        for layer in self.layers:
            h = layer(h, table, bias)
        return F.linear(h.flatten(0, 1).index_select(0, positions), self.embedding.weight, self.output_bias)


def rotary_table(length, dim):
    frequency = 10000.0 ** (torch.arange(0, dim, 2, dtype=torch.float64) / -dim)
    angle = torch.outer(torch.arange(length, dtype=torch.float64), frequency)
    return torch.polar(torch.ones_like(angle), angle).to(torch.complex64).unsqueeze(1)


def rotate(x, table):
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * table).flatten(-2)


def draw_batch(corpus, batch, length):
    starts = torch.randint(len(corpus) - length + 1, (batch, 1))
    tokens = corpus[starts + torch.arange(length)].flatten()
    positions = (torch.rand(len(tokens)) < 0.15).nonzero().flatten()
    targets = tokens[positions]
    fate = torch.rand(len(positions))
    replaced = torch.where(fate < 0.8, MASK, torch.where(fate < 0.9, torch.randint(MASK, targets.shape), targets))
    inputs = tokens.clone()
    inputs[positions] = replaced
    return inputs.view(batch, length), positions, targets


def python_step(options):
    """Returns the mean seconds of a step, including the first."""
    torch.manual_seed(1)
    corpus = torch.frombuffer(bytearray(Path(options.corpus).read_bytes()), dtype=torch.uint8).long()
    model = Roformer(options.layers, options.width, options.heads, options.positions, options.train_length)
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    start = time.perf_counter()
    for _ in range(options.steps):
        tokens, positions, targets = draw_batch(corpus, options.batch, options.train_length)
        loss = F.cross_entropy(model(tokens, positions), targets)
        loss.item()
        loss.backward()
        adamw.step()
        adamw.zero_grad()
    return (time.perf_counter() - start) / options.steps


def arguments_of(options):
    names = ["steps", "layers", "width", "heads", "batch", "train_length", "threads", "corpus", "positions"]
    return [f"--{name.replace('_', '-')}={getattr(options, name)}" for name in names]


def python_process(options):
    out = subprocess.run([sys.executable, __file__, "--python-only", *arguments_of(options)], check=True,
                         stdout=subprocess.PIPE)
    return float(out.stdout)


def program_process(options):
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.run(
            [options.program, "extrapolate", "--rules=entropy_invariant", "--rescaled=none", "--init=pytorch", "--jobs=1",
             "--evaluation-tokens=64", f"--lengths={options.train_length}",
             f"--output={folder}", "--json", "--quiet", *arguments_of(options)],
            check=True, stdout=subprocess.PIPE)
    return json.loads(out.stdout)["rules"][0]["seconds_per_step"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/bin/isentrope")
    parser.add_argument("--corpus", default="data/king-james.txt")
    parser.add_argument("--python-only", action="store_true")
    parser.add_argument("--positions", choices=["rope", "t5"], default="rope")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--train-length", type=int, default=64)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    if options.python_only:
        print(python_step(options))
        return
    isentrope, python = [], []
    for _ in range(options.rounds):
        python.append(python_process(options))
        isentrope.append(program_process(options))
        print(f"python {python[-1]:.4f}   isentrope {isentrope[-1]:.4f} s/step   ratio {isentrope[-1] / python[-1]:.3f}",
              flush=True)
    ratio = statistics.median(a / b for a, b in zip(isentrope, python))
    print(f"median: python {statistics.median(python):.4f}   isentrope {statistics.median(isentrope):.4f} s/step   "
          f"ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
