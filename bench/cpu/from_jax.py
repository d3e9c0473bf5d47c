#!/usr/bin/env python3
"""Times attention from JAX beside jax.nn.dot_product_attention, in turns: the least of several runs, and the ratio.

    from_jax.py [--runs 5] [--length 4096]      # PYTHONPATH must have isentrope; without torch
"""

import argparse
import functools
import resource
import time

import jax
from jax import numpy as jnp

from isentrope.jax import attention


def milliseconds(f, *x):
    begin = time.perf_counter()
    jax.block_until_ready(f(*x))
    return 1e3 * (time.perf_counter() - begin)


def pair(dtype, length, gradients):
    """Returns both functions and their arguments, 8 heads of 64, causal."""
    x = [jax.random.normal(jax.random.key(i), (1, length, 8, 64), dtype) for i in range(3)]
    both = [functools.partial(f, is_causal=True) for f in (jax.nn.dot_product_attention, attention)]
    if gradients:
        both = [jax.value_and_grad(lambda *x, f=f: f(*x).astype(jnp.float32).sum(), (0, 1, 2)) for f in both]
    return [jax.jit(f) for f in both], x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--length", type=int, default=4096)
    arguments = parser.parse_args()
    for dtype in ("float32", "bfloat16"):
        for gradients in (False, True):
            both, x = pair(dtype, arguments.length, gradients)
            for f in both:  # compiles
                jax.block_until_ready(f(*x))
            runs = [[milliseconds(f, *x) for f in both] for _ in range(arguments.runs)]
            theirs, ours = (min(column) for column in zip(*runs))
            what = "forward and gradients" if gradients else "forward"
            print(f"{dtype:8} {what:21} JAX {theirs:6.0f} ms, here {ours:5.0f} ms: {theirs / ours:.1f} times", flush=True)
    (_, f), x = pair("float32", 24_000, True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = milliseconds(f, *x)
    grown = max(0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"24,000 keys with gradients: {took / 1e3:.1f} s, and {grown:.0f} MB above the peak before")


if __name__ == "__main__":
    main()
