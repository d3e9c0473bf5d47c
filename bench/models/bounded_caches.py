#!/usr/bin/env python3
"""Compares caches of a fixed size, by the protocol in docs/recipes/bounded-cache.md.

    bounded_caches.py MODEL.gguf data/king-james.txt --output docs/results/bounded-cache.json [--speed]

Passages that the output has are not read again. --speed times generation instead, which needs a machine at rest.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch
from transformers import DynamicCache

from isentrope._core.files import write_text
from isentrope.commands.reading import load_causal, passages_of

sys.path.append(str(Path(__file__).parents[2] / "examples"))
import bounded_cache as recipe

PASSAGES, LENGTH, GENERATED = 8, 4096, 64
EDGES = 0, 512, 1024, 2048, LENGTH


def window(sinks):
    """Returns what keeps the first `sinks` entries, and the last."""
    def kept(received):
        last = torch.arange(sinks - recipe.SIZE, 0) + received.shape[1]
        return torch.cat([torch.arange(sinks), last]).expand(len(received), -1)
    return kept


METHODS = {"full": None, "window": window(0), "first 4 and window": window(4), "received": recipe.kept}


def reader(model, method):
    """Returns a step of the recipe by this method, and its cache. Other methods than received need no record."""
    cache, sums = DynamicCache(), {}
    kept = METHODS[method]

    @torch.no_grad()
    def step(tokens, first):
        if method == "received":
            return recipe.step(model, tokens, first, cache, sums)
        at = torch.arange(first, first + len(tokens))[None]
        logits = model(tokens[None], position_ids=at, past_key_values=cache).logits[0]
        for layer in cache.layers if kept and cache.layers[0].keys.shape[2] >= recipe.SIZE + recipe.CHUNK else ():
            rows = kept(layer.keys[0, :, :, 0])[None, :, :, None]
            layer.keys, layer.values = layer.keys.take_along_dim(rows, 2), layer.values.take_along_dim(rows, 2)
        return logits

    return step, cache


def read(model, method, passage):
    """Returns the mean loss of each bin of positions."""
    step, _ = reader(model, method)
    losses = [
        torch.nn.functional.cross_entropy(step(tokens, index * recipe.CHUNK), targets, reduction="none")
        for index, (tokens, targets) in enumerate(zip(passage[:-1].split(recipe.CHUNK), passage[1:].split(recipe.CHUNK)))
    ]
    return [torch.cat(losses)[first:last].mean().item() for first, last in zip(EDGES, EDGES[1:])]


def speed(model, passage):
    """Returns seconds of a generated token and bytes of the cache, by method. Methods take turns, token by token."""
    readers = {method: reader(model, method) for method in METHODS}
    for step, _ in readers.values():
        for index, tokens in enumerate(passage[:-1].split(recipe.CHUNK)):
            step(tokens, index * recipe.CHUNK)
    seconds = {method: [] for method in METHODS}
    for position in range(LENGTH, LENGTH + GENERATED):
        for method, (step, _) in readers.items():
            begun = time.perf_counter()
            step(passage[-1:], position)
            seconds[method].append(time.perf_counter() - begun)

    def size(cache):
        return sum(x.numel() * x.element_size() for layer in cache.layers for x in (layer.keys, layer.values))

    return {m: {"seconds": sum(seconds[m]) / GENERATED, "bytes": size(cache)} for m, (_, cache) in readers.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--speed", action="store_true")
    options = parser.parse_args()
    result = json.loads(options.output.read_text()) if options.output.exists() else {"edges": EDGES, "passages": []}
    model, tokenizer = load_causal(options.model, "float32", "bounded_caches")
    model.set_attn_implementation("isentrope")
    passages = passages_of(tokenizer, options.text.read_text(), PASSAGES, LENGTH + 1, "bounded_caches")
    if options.speed:
        result["speed"] = speed(model, passages[0])
        write_text(options.output, json.dumps(result))
    for passage in passages[len(result["passages"]):] if not options.speed else ():
        result["passages"].append({method: read(model, method, passage) for method in METHODS})
        print(json.dumps(result["passages"][-1]), flush=True)
        write_text(options.output, json.dumps(result))


if __name__ == "__main__":
    main()
