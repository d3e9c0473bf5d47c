"""The monitor: what it reads, that it costs nothing unwatched, and the callback of transformers' Trainer."""

import pytest
import torch
import transformers as hf

import isentrope.hf
from isentrope.models import monitor

CONFIG = dict(vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, head_dim=8, max_position_embeddings=64)  # fmt: skip


def model():
    torch.manual_seed(3)
    made = hf.AutoModelForCausalLM.from_config(hf.LlamaConfig(**CONFIG))
    # The heads of layer 0 average over everything; those of layer 1 have logits of 1e4 and see one key.
    torch.nn.init.zeros_(made.model.layers[0].self_attn.q_proj.weight)
    made.model.layers[1].self_attn.q_proj.weight.data *= 1e5
    made.set_attn_implementation("isentrope")
    return made


def test_a_reading_tells_averaging_heads_from_collapsed_ones():
    made, tokens = model(), torch.randint(0, 61, (2, 40))
    watcher = monitor.Monitor(made)
    with watcher.watch():
        made(tokens)
    found = watcher.latest
    want = torch.arange(8, 41).double().log()
    torch.testing.assert_close(found.entropy[0], want.mean().expand(4), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.spread[0], want.std(correction=0).expand(4), rtol=1e-4, atol=1e-4)
    assert found.collapsed() == [(1, head) for head in range(4)]
    summary = found.summary()
    assert summary["attention/collapsed"] == 4 and summary["attention/max_logit"] > 100
    with watcher.watch(False):
        made(tokens)
    assert watcher.latest is None


def test_gradient_checkpointing_is_read_once():
    made, tokens = model().train(), torch.randint(0, 61, (1, 20))
    made.gradient_checkpointing_enable()
    watcher = monitor.Monitor(made)
    with watcher.watch():
        made(tokens, labels=tokens).loss.backward()
    assert watcher.latest.entropy.shape == (2, 4)


def test_another_attention_is_refused():
    made = hf.AutoModelForCausalLM.from_config(hf.LlamaConfig(**CONFIG))
    with pytest.raises(ValueError, match="attn_implementation"):
        monitor.Monitor(made)
    with pytest.raises(ValueError, match="every must be at least 1"):
        monitor.callback(0)


def test_the_trainer_logs_it(tmp_path):
    made = model()
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 61, (8, 24))]
    arguments = hf.TrainingArguments(
        str(tmp_path), max_steps=4, per_device_train_batch_size=2, logging_steps=100, report_to=[], use_cpu=True,
        disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    watching = monitor.callback(every=2)
    trainer = hf.Trainer(made, arguments, train_dataset=rows, callbacks=[watching])
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "attention/entropy" in entry]
    assert [entry["step"] for entry in logged] == [1, 3]
    assert all(entry["attention/collapsed"] == 4 for entry in logged)
    latest = watching.monitor.latest
    assert latest.entropy.numel() == latest.summary(below=100)["attention/collapsed"] > 4
