#!/usr/bin/env python3
"""Cost of derivatives: a jvp over a forward call, a gradient of a gradient over a gradient, and torch's SDPBackend.MATH over each.

    bench/cpu/derivatives.py [--rounds 5] [--json]

From Python, on one thread. The jvp has tangents of q, k and v; the gradient of a gradient is that of its product with these
tangents, a Hessian times a vector. A ratio is the median over rounds, each of which runs every kind of call once and divides processor times.
"""

import statistics
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import isentrope

sys.path.append(str(Path(__file__).parents[2]))
from bench.harness import print_rounds, processor_times
from bench.work import square, tensors_of

WORKS = [
    square("derivatives", *shape, dtype, causal)
    for shape, causal in (((1, 4, 4096, 64), True), ((1, 8, 2048, 128), False))
    for dtype in ("f32", "bf16")
]
RATIOS = {  # numerator and denominator, each of a function and a kind of call
    "jvp": (("isentrope", "jvp"), ("isentrope", "forward")),
    "second": (("isentrope", "second"), ("isentrope", "gradient")),
    "math_jvp": (("math", "jvp"), ("isentrope", "jvp")),
    "math_second": (("math", "second"), ("isentrope", "second")),
}


def by_math(*qkv, causal):
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(*qkv, is_causal=causal)


def calls_of(function, work):
    """Returns each kind of call as a function without arguments."""
    *qkv, d_output = tensors_of(work)
    tangents, leaves = [x.flip(2) for x in qkv], [x.clone().requires_grad_() for x in qkv]
    attend = lambda *x: function(*x, causal=work.causal)  # noqa: E731

    def second():
        gradients = torch.autograd.grad(attend(*leaves), leaves, d_output, create_graph=True)
        return torch.autograd.grad(gradients, leaves, tangents)

    return {
        "forward": lambda: attend(*qkv),
        "gradient": lambda: torch.autograd.grad(attend(*leaves), leaves, d_output),
        "jvp": lambda: torch.func.jvp(attend, tuple(qkv), tuple(tangents)),
        "second": second,
    }


def measure(rounds):
    rows = []
    for work in WORKS:
        print(work.name, file=sys.stderr)
        functions = {"isentrope": calls_of(isentrope.attention, work), "math": calls_of(by_math, work)}
        times = processor_times({(name, kind): functions[name][kind] for ratio in RATIOS.values() for name, kind in ratio}, rounds)
        row = {"work": work.name.removeprefix("derivatives ")}
        for name, (over, under) in RATIOS.items():
            ratios = sorted(a / b for a, b in zip(times[over], times[under]))
            row[name] = {"ratio": statistics.median(ratios), "range": [ratios[0], ratios[-1]]}
        rows.append(row)
    return {"rounds": rounds, "rows": rows}


def table_of(measured):
    yield f"{'':<32} {'jvp / forward':>14} {'second / gradient':>18} {'math / jvp':>11} {'math / second':>14}"
    for row in measured["rows"]:
        yield "{:<32} {:>14.2f} {:>18.2f} {:>11.2f} {:>14.2f}".format(row["work"], *(row[name]["ratio"] for name in RATIOS))


if __name__ == "__main__":
    print_rounds(__doc__, measure, table_of, 5)
