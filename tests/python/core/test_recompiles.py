"""Compiled functions with numbers that change from call to call."""

import itertools

import pytest
import torch
from torch._dynamo.utils import counters

import isentrope

VALUES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.1)
CALLS = {
    "scale": lambda q, x: isentrope.attention(q, q, q, scale=x),
    "scale beside a rule": lambda q, x: isentrope.attention(q, q, q, rule="entropy_invariant(base=7)", scale=x),
    "soft_cap": lambda q, x: isentrope.attention(q, q, q, rule="logn(3)", soft_cap=x),
    "both, and statistics": lambda q, x: isentrope.attention(
        q, q, q, rule="xai_temperature(4)", scale=x, soft_cap=2 * x, causal=True, return_stats=("entropy",)
    )[0],
    "the drop-in": lambda q, x: isentrope.scaled_dot_product_attention(q, q, q, scale=x),
}


# aot_eager takes the graphs of eager, and those of the gradients.
QUICK = {("both, and statistics", "aot_eager"), ("the drop-in", "aot_eager")}
WAYS = itertools.product(CALLS, ("eager", "aot_eager", "inductor"))


@pytest.mark.parametrize("name, backend", [way if way in QUICK else pytest.param(*way, marks=pytest.mark.long) for way in WAYS])
def test_a_changing_number_is_not_compiled_for_each_value(name, backend):
    call = CALLS[name]
    torch._dynamo.reset()
    counters.clear()
    q = torch.randn(1, 2, 8, 16, requires_grad=True)
    attend = torch.compile(call, backend=backend, fullgraph=True)
    for value in VALUES:
        want, got = call(q, value), attend(q, value)
        assert torch.equal(got, want)
        assert torch.equal(*(torch.autograd.grad(x.square().sum(), q)[0] for x in (got, want)))
    # Once for the first value, which might have been a constant, and once for all others.
    assert counters["stats"]["unique_graphs"] == 2


def test_a_number_that_stays_is_a_constant_of_the_graph():
    counters.clear()
    torch._dynamo.reset()
    targets = []

    def backend(graph, _):
        targets.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    q = torch.randn(1, 2, 8, 16)
    torch.compile(CALLS["scale"], backend=backend, fullgraph=True)(q, 0.5)
    assert targets and not any("ones" in target for target in targets)
