#!/usr/bin/env python3
"""Times attention from JAX beside jax.nn.dot_product_attention, in turns: the least of several runs, and the ratio.

    from_jax.py [--runs 3] [--length 4096]      # PYTHONPATH must have isentrope; without torch
"""

import argparse
import functools
import resource
import time

import jax
from jax import numpy as jnp

from isentrope.jax import attention


def milliseconds(f, *x, calls=1):
    """Returns the least of several calls in a row: the first shares the machine with JAX, which still frees its weights."""
    times = []
    for _ in range(calls):
        begin = time.perf_counter()
        jax.block_until_ready(f(*x))
        times.append(1e3 * (time.perf_counter() - begin))
    return min(times)


def pair(dtype, length, gradients):
    """Returns both functions and their arguments, 8 heads of 64, causal."""
    x = [jax.random.normal(jax.random.key(i), (1, length, 8, 64), dtype) for i in range(3)]
    both = [functools.partial(f, is_causal=True) for f in (jax.nn.dot_product_attention, attention)]
    if gradients:
        both = [jax.value_and_grad(lambda *x, f=f: f(*x).astype(jnp.float32).sum(), (0, 1, 2)) for f in both]
    return [jax.jit(f) for f in both], x


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def memory() -> None:
    """Prints what gradients over 24,000 keys take beyond their arrays; first, because the peak of a process never falls."""
    (_, f), x = pair("float32", 24_000, True)
    jax.block_until_ready(f(*[y[:, :64] for y in x]))
    before = megabytes()
    took = milliseconds(f, *x)
    arrays = 5 * x[0].nbytes / 1e6  # output, its gradient and those of q, k and v
    print(f"24,000 keys with gradients: {took / 1e3:.1f} s, {megabytes() - before:.0f} MB, of which {arrays:.0f} are arrays", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--length", type=int, default=4096)
    arguments = parser.parse_args()
    memory()
    for dtype in ("float32", "bfloat16"):
        for gradients in (False, True):
            both, x = pair(dtype, arguments.length, gradients)
            for f in both:  # compiles
                jax.block_until_ready(f(*x))
            runs = [[milliseconds(f, *x, calls=3) for f in both] for _ in range(arguments.runs)]
            theirs, ours = (min(column) for column in zip(*runs))
            what = "forward and gradients" if gradients else "forward"
            print(f"{dtype:8} {what:21} JAX {theirs:6.0f} ms, here {ours:5.0f} ms: {theirs / ours:.1f} times", flush=True)


if __name__ == "__main__":
    main()
