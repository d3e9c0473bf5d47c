"""The monitor: readings and their modules, unchanged training, and the callback of transformers' Trainer."""

import json
import subprocess
import sys

import pytest
import torch
import transformers as hf
from tiny_model import CONFIG, tiny_trainer
from tiny_model import model as tiny

import isentrope
import isentrope.hf
from isentrope.models import monitor, monitor_logs


def model():
    llama = tiny("isentrope", sharper=1).train()
    # Heads of layer 0 average over all keys; those of layer 1 have logits of 1e4 and attend to one key.
    torch.nn.init.zeros_(llama.model.layers[0].self_attn.q_proj.weight)
    llama.model.layers[1].self_attn.q_proj.weight.data *= 1e5
    return llama


def test_a_reading_tells_averaging_heads_from_collapsed_ones():
    llama, tokens = model(), torch.randint(0, 61, (2, 40))
    watcher = monitor.Monitor(llama)
    with watcher.watch():
        llama(tokens)
    reading = watcher.latest
    want = torch.arange(8, 41).double().log()
    torch.testing.assert_close(reading.entropy[0], want.mean().expand(4), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(reading.spread[0], want.std(correction=0).expand(4), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(reading.max_probability[0], (1 / want.exp()).mean().expand(4), rtol=1e-5, atol=1e-5)
    assert (reading.max_probability[1] > 0.99).all()
    assert reading.collapsed() == [(1, head) for head in range(4)]
    summary = reading.summary()
    assert summary["attention/collapsed"] == 4 and summary["attention/max_logit"] > 100
    assert summary["attention/max_probability"] == reading.max_probability.max()
    with watcher.watch(False):
        llama(tokens)
    assert watcher.latest is None


@pytest.mark.long
def test_a_statistic_that_the_library_lists_for_logs_is_logged():
    code = """
from isentrope._core.library import STATISTICS
next(s for s in STATISTICS if s["name"] == "variance")["logged"] = "mean"
import isentrope, torch
q, watcher = torch.randn(1, 2, 20, 8), isentrope.Monitor(model := torch.nn.Identity())
model.forward = lambda x: isentrope.attention(x, x, x)
with watcher.watch():
    model(q)
print(watcher.latest.variance[0].tolist() == isentrope.attention(q, q, q, return_stats="variance")[1].variance.double().mean(2)[0].tolist())
print("variance" in watcher.latest.rows()[0], "attention/variance" in watcher.latest.summary())
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["True"] * 3


def test_gradient_checkpointing_is_read_once():
    llama, tokens = model().train(), torch.randint(0, 61, (1, 20))
    llama.gradient_checkpointing_enable()
    watcher = monitor.Monitor(llama)
    with watcher.watch():
        llama(tokens, labels=tokens).loss.backward()
    assert watcher.latest.entropy.shape == (2, 4)


def test_a_model_without_attention_that_can_be_seen_is_refused():
    eager = hf.AutoModelForCausalLM.from_config(hf.LlamaConfig(**CONFIG, attn_implementation="eager"))
    with pytest.raises(ValueError, match="attn_implementation"), monitor.Monitor(eager).watch():
        eager(torch.randint(0, 61, (1, 12)))
    with pytest.raises(ValueError, match="every must be at least 1"):
        monitor.callback(0)


class Block(torch.nn.Module):
    """Attention computed in one of three equivalent ways."""

    def __init__(self, way, heads=4):
        super().__init__()
        torch.manual_seed(1)
        self.heads, self.way = heads, way
        self.inside = torch.nn.MultiheadAttention(32, heads, batch_first=True)

    def forward(self, x):
        causal = torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        if self.way == "torch's module":
            return self.inside(x, x, x, attn_mask=causal, is_causal=True, need_weights=False)[0]
        q, k, v = self.inside.in_proj_weight.view(3, 32, 32).unbind(0)
        split = lambda weight: (x @ weight.T).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # noqa: E731
        attend = {
            "torch's function": lambda *qkv: torch.nn.functional.scaled_dot_product_attention(*qkv, is_causal=True),
            "isentrope": lambda *qkv: isentrope.attention(*qkv, causal=True),
        }[self.way]
        return self.inside.out_proj(attend(split(q), split(k), split(v)).transpose(1, 2).flatten(2))


WAYS = ["torch's module", "torch's function", "isentrope"]


def read(model, x, **options):
    watcher = isentrope.Monitor(model)
    with watcher.watch():
        result = model(x, **options)
    return result, watcher.latest


@pytest.mark.parametrize("way", WAYS)
def test_any_module_is_read_and_left_as_it_is(way):
    model, x = torch.nn.Sequential(Block(way), torch.nn.Tanh(), Block(way)), torch.randn(2, 20, 32)
    want = model(x)
    result, reading = read(model, x)
    assert torch.equal(result, want) and result.requires_grad
    attended = {"torch's module": ("0.inside", "2.inside")}.get(way, ("0", "2"))
    assert reading.names == attended and reading.entropy.shape == (2, 4)
    assert list(reading.heads())[0] == f"attention/{attended[0]}/head0/entropy" and len(reading.heads()) == 24
    reference = read(torch.nn.Sequential(Block("isentrope"), torch.nn.Tanh(), Block("isentrope")), x)[1]
    torch.testing.assert_close(reading[:3], reference[:3], rtol=1e-4, atol=1e-4)


def test_layers_may_have_unlike_heads_and_others_are_not_read():
    model, other, x = torch.nn.Sequential(Block(WAYS[1]), Block(WAYS[2], heads=2)), Block(WAYS[2]), torch.randn(1, 12, 32)
    watcher = isentrope.Monitor(model)
    with watcher.watch():
        other(model(x))
    assert watcher.latest.names == ("0", "1") and len(watcher.latest.heads()) == 3 * (4 + 2)
    assert watcher.latest.entropy[1].isnan().tolist() == [False, False, True, True]


def test_rows_without_a_number_are_told(tmp_path):
    x = torch.randn(1, 20, 32)
    x[0, 15:] = torch.nan  # of 13 rows with 8 keys 5 see such keys
    _, reading = read(Block("isentrope"), x)
    torch.testing.assert_close(reading.broken[0], torch.full((4,), 5 / 13).double())
    assert reading.summary()["attention/broken"] == reading.broken.mean() and not reading.entropy.isnan().any()
    monitor_logs.JsonLines(tmp_path / "heads.jsonl")(0, read(Block("isentrope"), x * torch.nan)[1])
    lines = [json.loads(line) for line in (tmp_path / "heads.jsonl").read_text().splitlines()]
    assert [(line["entropy"], line["broken"]) for line in lines] == [(None, 1)] * 4


@pytest.mark.filterwarnings("ignore:.*float64")
def test_torchs_function_is_read_under_the_rule_that_is_active():
    x, torchs_function = torch.randn(1, 30, 32), torch.nn.functional.scaled_dot_product_attention
    plain = read(Block(WAYS[1]), x)[1].entropy
    with isentrope.sdpa.activate("entropy_invariant(base=2)"):
        sharper = read(Block(WAYS[1]), x)[1].entropy
        by_module = read(Block(WAYS[0]), x)[1].entropy  # its mask is of floating point
        by_torch = read(Block(WAYS[1]).double(), x.double())[1].entropy  # under 1/sqrt(dim), as a warning says
    torch.testing.assert_close(by_torch, plain, rtol=1e-4, atol=1e-4)
    assert (sharper < plain - 0.01).all()
    torch.testing.assert_close(by_module, sharper, rtol=1e-4, atol=1e-4)
    assert torch.nn.functional.scaled_dot_product_attention is torchs_function


def test_dropout_is_drawn_as_without_the_monitor():
    def draw(watched):
        torch.manual_seed(5)
        watcher, q = isentrope.Monitor(torch.nn.Identity()), torch.randn(1, 2, 16, 8)
        attend = lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q, None, 0.5)  # noqa: E731
        if not watched:
            return attend()
        with pytest.raises(ValueError, match="neither"), watcher.watch():
            result = attend()
        return result

    assert torch.equal(draw(True), draw(False))


def test_the_trainer_logs_it(tmp_path):
    llama = model()
    watching = monitor.callback(every=2, log=monitor_logs.JsonLines(tmp_path / "log/heads.jsonl"))
    trainer = tiny_trainer(llama, tmp_path, watching, max_steps=4, logging_steps=100)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "attention/entropy" in entry]
    assert [entry["step"] for entry in logged] == [1, 3]
    assert all(entry["attention/collapsed"] == 4 for entry in logged)
    lines = [json.loads(line) for line in (tmp_path / "log/heads.jsonl").read_text().splitlines()]
    assert [(line["step"], line["layer"], line["head"]) for line in lines] == [
        (step, layer, head) for step in (0, 2) for layer in range(2) for head in range(4)
    ]
    latest = watching.monitor.latest
    assert [line["entropy"] for line in lines[8:]] == latest.entropy.flatten().tolist()
    assert latest.entropy.numel() == latest.summary(below=100)["attention/collapsed"] > 4
    for step, is_read in ((2, False), (4, True), (4, False)):  # Lightning begins and ends each batch of a step
        watching._begin(step), llama(torch.ones(1, 20, dtype=torch.long))
        assert (watching._end() is not None) == is_read


def test_tensorboard_gets_every_head(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    _, reading = read(Block("isentrope"), torch.randn(2, 20, 32))
    with SummaryWriter(tmp_path) as writer:
        monitor_logs.TensorBoard(writer)(7, reading)
    curves = EventAccumulator(str(tmp_path)).Reload()
    assert set(curves.Tags()["scalars"]) == reading.heads().keys() | reading.summary().keys()
    (point,) = curves.Scalars("attention//head3/max_probability")
    assert point.step == 7 and point.value == pytest.approx(reading.max_probability[0, 3].item())


def test_lightning_logs_it(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.block = Block("isentrope")

        def training_step(self, batch, _):
            return self.block(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    watching = monitor.lightning_callback(every=2, log=monitor_logs.JsonLines(tmp_path / "heads.jsonl"))
    trainer = lightning.Trainer(
        max_epochs=1, callbacks=[watching], logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu",
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(6, 20, 32), batch_size=2))
    steps = [json.loads(line)["step"] for line in (tmp_path / "heads.jsonl").read_text().splitlines()]
    assert steps == [0] * 4 + [2] * 4 and watching.monitor.latest.names == ("block",)
    assert trainer.callback_metrics["attention/entropy"] == pytest.approx(watching.monitor.latest.entropy.mean().item())
