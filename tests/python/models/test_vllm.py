"""isentrope.vllm without vLLM: its entry point, its rule, and what it records. `make test-vllm` has the rest."""

import sys
from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaConfig

import isentrope.vllm
from isentrope._core.call import Call
from isentrope._core.library import CHECKED
from isentrope.vllm import plugin, recorder
from isentrope.vllm.recorder import Step
from isentrope.vllm.rule import served_rule


def test_without_the_variable_the_entry_point_does_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)  # which makes its import an error
    for value in (None, "0", ""):
        monkeypatch.delenv("ISENTROPE_VLLM", raising=False)
        if value is not None:
            monkeypatch.setenv("ISENTROPE_VLLM", value)
        assert plugin.register() is None
    monkeypatch.setenv("ISENTROPE_VLLM", "1")
    with pytest.raises(ImportError):
        plugin.register()


def test_a_rule_multiplies_the_models_own_scale_and_is_not_applied_twice(monkeypatch):
    monkeypatch.delenv("ISENTROPE_RULE", raising=False)
    assert CHECKED.rule_lambda(served_rule(LlamaConfig(), 0.25), 100, 64, 0) == 0.25
    monkeypatch.setenv("ISENTROPE_RULE", "logn(train_len=64)")
    long = CHECKED.rule_lambda(served_rule(LlamaConfig(), 0.25), 64**2, 64, 0)
    assert long == pytest.approx(0.5)
    scaled = LlamaConfig(rope_parameters={"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 64})
    with pytest.raises(ValueError, match="ISENTROPE_RULE must be empty for a model that scales by length already; got 'logn"):
        served_rule(scaled, 0.25)
    monkeypatch.setenv("ISENTROPE_RULE", "no_rule")
    with pytest.raises(ValueError, match="no_rule"):
        served_rule(LlamaConfig(), 0.25)


# Two requests: a decode step at position 4, and the three tokens of a prompt.
STEP = Step(torch.tensor([[2], [0]], dtype=torch.int32), torch.tensor([5, 3]), torch.tensor([0, 1, 4]))


def record_layer(**options):
    """Computes one layer of a step as the backend does, and hands it to the recorder."""
    torch.manual_seed(0)
    q, k = torch.randn(1, 4, 4, 16), torch.randn(3, 2, 8, 16)
    call = Call(q, k, k, rule="standard", causal=2, **options)
    recorder.add("layer 0", STEP, call, CHECKED.decode(*call, *STEP, recorder.wanted()))
    return q[0], k


@pytest.fixture
def worker():
    found = SimpleNamespace(model_runner=SimpleNamespace(input_batch=SimpleNamespace(req_ids=["7-0123abcd", "my-id-89abcdef"])))
    recorder.start(found)
    yield found
    recorder.start(found, on=False)
    assert recorder.wanted() == 0


def test_tokens_are_at_their_positions_by_request(worker):
    q, k = record_layer()
    record_layer()  # the same layer again, of the next step
    llm = SimpleNamespace(collective_rpc=lambda method, args=(): [recorder.take(worker)])
    found = isentrope.vllm.statistics(llm)
    assert list(found) == ["7", "my-id"] and isentrope.vllm.statistics(llm) == {}
    assert found["7"].entropy.shape == (5, 1) and found["7"].entropy[:4].isnan().all()
    assert found["my-id"].first_weight[0] == pytest.approx(1, rel=1e-6) and found["my-id"].entropy[0] == 0
    keys = k[2, :, :5].repeat_interleave(2, 0)
    weights = torch.softmax((q[:, :1] * keys).sum(-1) / 4, -1)
    logits = (q[:, :1] * keys).sum(-1) / 4
    assert found["7"].first_weight[4, 0] == pytest.approx(float(weights[:, 0].mean()), rel=1e-4)
    assert found["7"].max_logit[4, 0] == pytest.approx(float(logits.max()), rel=1e-4)
    assert found["7"].entropy[4, 0] == pytest.approx(float(-(weights * weights.log()).sum(-1).mean()), rel=1e-4)


def test_a_sink_takes_weight_from_the_first_key_and_a_window_hides_it(worker):
    sinks = torch.tensor([1.0, 2.0, 3.0, 4.0])
    record_layer(sinks=sinks)
    (_, one) = recorder.take(worker)["my-id"]
    assert float(torch.frombuffer(bytearray(one), dtype=torch.float32).view(3, 3, 1)[2, 0, 0]) < 0.9
    record_layer(window_left=1)
    (_, one) = recorder.take(worker)["my-id"]
    assert torch.frombuffer(bytearray(one), dtype=torch.float32).view(3, 3, 1)[2, 2, 0] == 0


def test_ranks_of_a_model_are_joined():
    def rank(value):
        return {"a": ([3, 2, 1], torch.full((3, 2, 1), value).numpy().tobytes())}

    found = isentrope.vllm.statistics(SimpleNamespace(collective_rpc=lambda method, args=(): [rank(1.0), rank(3.0)]))["a"]
    assert (found.entropy == 2).all() and (found.max_logit == 3).all() and (found.first_weight == 2).all()


@pytest.mark.parametrize("error", [AttributeError, NotImplementedError, RuntimeError])
def test_an_engine_without_isentrope_is_named(error):
    def refuse(method, args=()):
        raise error(f"'CPUWorker' object has no attribute {method!r}")

    with pytest.raises(ValueError, match="ISENTROPE_VLLM must be 1 when the engine starts"):
        isentrope.vllm.record(SimpleNamespace(collective_rpc=refuse))


def test_other_errors_of_an_engine_are_its_own():
    def refuse(method, args=()):
        raise RuntimeError("the engine has ended")

    with pytest.raises(RuntimeError, match="the engine has ended"):
        isentrope.vllm.record(SimpleNamespace(collective_rpc=refuse))
