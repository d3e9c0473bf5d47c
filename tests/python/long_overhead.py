"""What a call costs beside torch's own, where there is next to nothing to compute."""

import statistics
import time

import torch
import torch.nn.functional as F

import isentrope

CALLS, ROUNDS = 300, 41


def microseconds(call):
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS * 1e6


def test_a_call_costs_at_most_10_microseconds_more_than_sdpa():
    torch.set_num_threads(1)
    q, k, v = (torch.randn(1, 8, 1, 64) for _ in range(3))
    calls = {
        "sdpa": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        "isentrope": lambda: isentrope.attention(q, k, v, causal=True),
    }
    found = {name: [] for name in calls}
    with torch.inference_mode():
        for _ in range(ROUNDS):
            for name, call in calls.items():
                found[name].append(microseconds(call))
    medians = {name: statistics.median(values) for name, values in found.items()}
    print(medians)
    assert medians["isentrope"] <= medians["sdpa"] + 10
