"""Whole models of transformers under torch.compile."""

import pytest
import torch
from families import model_of
from transformers import StaticCache

import isentrope.hf

FAMILIES = ("llama", "gemma2", "gpt2", "gpt_neox", "qwen3")
BACKENDS = ("aot_eager", "inductor")
RULE = "log_length"


def model(name):
    loaded = model_of(name, "isentrope")
    isentrope.hf.set_rule(loaded, RULE)
    return loaded


def step(loaded, run, length):
    tokens = torch.randint(3, 61, (2, length), generator=torch.Generator().manual_seed(length))
    loaded.zero_grad()
    # The loss is computed here, because that of transformers logs a warning for GPT-2, which breaks the graph.
    logits = run(input_ids=tokens, use_cache=False).logits
    torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    return logits.detach(), [(name, p.grad.clone()) for name, p in loaded.named_parameters() if p.grad is not None]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_compiled_model_is_the_model(name, backend):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    loaded = model(name)
    compiled = torch.compile(loaded, dynamic=True, backend=backend)
    for length in (9, 12, 17):
        (want, wanted), (got, gradients) = step(loaded, loaded, length), step(loaded, compiled, length)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        for (weight, a), (_, b) in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5, msg=lambda m: f"{weight}: {m}")
    breaks = torch._dynamo.utils.counters["graph_break"]
    assert not breaks, f"the graph is one: {dict(breaks)}"
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2, "not one for each length"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FAMILIES)
def test_steps_on_a_static_cache(name, backend):
    torch._dynamo.reset()
    loaded = model(name)
    compiled = torch.compile(loaded, fullgraph=True, backend=backend)
    tokens = torch.randint(3, 61, (2, 12), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        want = loaded(input_ids=tokens, use_cache=False).logits
        cache = StaticCache(loaded.config, max_cache_len=16)
        loaded(input_ids=tokens[:, :8], past_key_values=cache)
        for position in range(8, 12):
            positions = torch.full((2, 1), position)
            got = compiled(input_ids=tokens[:, position : position + 1], position_ids=positions, past_key_values=cache).logits
            torch.testing.assert_close(got[:, 0], want[:, position], rtol=1e-4, atol=1e-5)
