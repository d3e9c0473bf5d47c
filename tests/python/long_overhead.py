"""What a call costs beside torch's own, where there is next to nothing to compute."""

import statistics
import time

import pytest
import torch
import torch.nn.functional as F

import isentrope

CALLS, ROUNDS = 300, 41


def microseconds(call):
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS * 1e6


def rounds(**calls):
    """Microseconds of each call, round by round, by turns."""
    for call in calls.values():
        microseconds(call)
    found = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            found[name].append(microseconds(call))
    return found


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dim", [8, 32])
@pytest.mark.parametrize("upstream", ["dense", "of a sum"])
def test_gradients_of_16_rows_take_half_as_long_again_as_sdpas(upstream, dim, causal):
    q, k, v = (torch.randn(1, 8, 16, dim, requires_grad=True) for _ in range(3))
    dense = torch.randn(q.shape)

    def run(attention):
        output = attention(q, k, v, is_causal=causal)
        if upstream == "dense":
            output.backward(dense)
        else:
            output.sum().backward()  # a gradient whose strides are 0

    found = rounds(
        sdpa=lambda: run(F.scaled_dot_product_attention), isentrope=lambda: run(isentrope.attention)
    )
    ratio = statistics.median(ours / theirs for ours, theirs in zip(found["isentrope"], found["sdpa"]))
    print(upstream, dim, causal, {name: statistics.median(values) for name, values in found.items()}, ratio)
    assert ratio < 1.6  # 1.33 to 1.47 on a quiet machine


# The last one, for torch is not quite as before once its threads were set.
def test_a_call_costs_at_most_10_microseconds_more_than_sdpa():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    q, k, v = (torch.randn(1, 8, 1, 64) for _ in range(3))
    try:
        with torch.inference_mode():
            found = rounds(
                sdpa=lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True),
                isentrope=lambda: isentrope.attention(q, k, v, causal=True),
            )
    finally:
        torch.set_num_threads(threads)
    medians = {name: statistics.median(values) for name, values in found.items()}
    print(medians)
    assert medians["isentrope"] <= medians["sdpa"] + 10
