"""Weights that keys receive, in recordings, the monitor and inspections."""

import pytest
import torch
import transformers as hf
from families import model_of
from programs import loaded
from refusals import assert_refused

import isentrope
import isentrope.hf
from isentrope.models.inspect import inspect


@pytest.fixture(scope="module")
def model():
    return model_of("llama", "isentrope")


def eager(model, tokens):
    """Returns the weights of each layer, [heads, queries, keys]."""
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            return [x[0] for x in model(tokens[None], output_attentions=True).attentions]
    finally:
        model.set_attn_implementation("isentrope")


def test_recordings_and_the_monitor_have_the_weights_of_eager_attention(model):
    tokens = torch.randint(1, 61, (20,))
    monitor = isentrope.Monitor(model, received=True)
    with monitor.watch(), isentrope.hf.record("entropy", "received") as records, torch.no_grad():
        model(tokens[None])
    assert len(records) == len(monitor.received) == 2
    for (module, statistics), record, watched, weights in zip(records, records, monitor.received.values(), eager(model, tokens)):
        assert module is record.module and statistics.lse is None
        torch.testing.assert_close(record.received[0], weights.sum(1), rtol=1e-4, atol=1e-5)
        assert torch.equal(watched, record.received[0])
    with isentrope.hf.record("entropy") as records, monitor.watch(False), torch.no_grad():
        model(tokens[None])
    assert records[0].received is None and monitor.received == {}
    with isentrope.hf.record("received"):
        loss, inputs = lambda x: model(inputs_embeds=x).logits.sum(), torch.randn(1, 5, model.config.hidden_size)
        assert_refused("must be asked for outside of torch.func", torch.func.grad(loss), inputs)


def test_an_inspection_has_sinks_and_positions(model):
    texts = [torch.randint(1, 61, (20,)), torch.randint(1, 61, (13,))]
    inspection = inspect(model, texts)
    weights = [eager(model, tokens) for tokens in texts]
    sink = torch.stack([torch.stack([w[:, :, 0].mean(1) for w in of_text]) for of_text in weights]).mean(0)
    torch.testing.assert_close(inspection.sink, sink.double(), rtol=1e-4, atol=1e-5)
    assert inspection.positions == [1, 2, 3.5, 6.5, 12.5, 18.5] and inspection.received.shape == (2, 4, 6)
    # Positions 9 ... 16: the second text ends within them.
    fifth = [torch.stack([w.sum(1)[:, 8:16].mean(1) for w in of_text]) for of_text in weights]
    torch.testing.assert_close(inspection.received[..., 4], torch.stack(fifth).mean(0).double(), rtol=1e-4, atol=1e-5)
    assert inspection.to_dict()["received"]["positions"] == inspection.positions


def test_a_bounded_cache_keeps_the_last_and_the_heaviest_entries(model, monkeypatch):
    recipe = loaded("examples/bounded_cache.py")
    monkeypatch.setattr(recipe, "SIZE", 12)
    monkeypatch.setattr(recipe, "CHUNK", 4)
    tokens, cache, sums, full = torch.randint(1, 61, (16,)), hf.DynamicCache(), {}, hf.DynamicCache()
    logits = [recipe.step(model, part, 4 * index, cache, sums) for index, part in enumerate(tokens.split(4))]
    with torch.no_grad():
        torch.testing.assert_close(torch.cat(logits), model(tokens[None], past_key_values=full).logits[0])
    for bounded, whole, weights in zip(cache.layers, full.layers, eager(model, tokens)):
        received = weights.sum(1).view(2, 2, -1).mean(1)
        for head, of_keys in enumerate(received):
            kept = sorted(of_keys[:12].topk(8).indices.tolist()) + [12, 13, 14, 15]
            torch.testing.assert_close(bounded.values[0, head], whole.values[0, head, kept])
