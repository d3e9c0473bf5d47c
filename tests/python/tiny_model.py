"""A model of two layers with a vocabulary of 61, a text, and the commands that use them."""

from __future__ import annotations

import contextlib
import importlib
import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers

CONFIG: dict[str, Any] = dict(vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                              num_attention_heads=4, num_key_value_heads=2, head_dim=8)  # fmt: skip
SHORTEST: dict[str, list[Any]] = {  # arguments of the shortest run of each command that reads a model
    "inspect": ["--texts", 1, "--max-length", 8],
    "calibrate": ["--rope", "yarn:4", "--texts", 1, "--length", 256, "--passages", 1, "--lengths", 512, 1024],
    "evaluate": ["--rules", "standard", "scaled(1.1)", "--passages", 1, "--lengths", 0, 256],
}


def model(attention="sdpa", sharper=20, **changes):
    """Returns a model trained on 512 tokens, whose sharper scores give heads distinct temperatures."""
    torch.manual_seed(3)
    config = hf.LlamaConfig(**(CONFIG | {"max_position_embeddings": 512} | changes))
    llama = hf.AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    sharpen(llama, sharper)
    return llama


def sharpen(llama, factor):
    for name, parameter in llama.named_parameters():
        if "q_proj" in name or "k_proj" in name:
            parameter.data *= factor


def tokens(count, length, seed=5):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 61, (length,), generator=generator) for _ in range(count)]


def tiny_trainer(llama, folder: Path, callback, **options):
    """Returns transformers' Trainer of a model of this vocabulary, on 8 texts of 24 tokens."""
    rows = [{"input_ids": row, "labels": row} for row in tokens(8, 24)]
    arguments = hf.TrainingArguments(
        str(folder), per_device_train_batch_size=2, report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no", **options
    )  # fmt: skip
    return hf.Trainer(llama, arguments, train_dataset=rows, callbacks=[callback])


def save(llama, folder: Path, words: int) -> Path:
    """Saves the model in folder/tiny with a tokenizer of words w1 ... w60, and `words` of them in folder/text.txt."""
    llama.save_pretrained(folder / "tiny")
    vocabulary = {"[UNK]": 0} | {f"w{i}": i for i in range(1, 61)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(folder / "tiny")
    (folder / "text.txt").write_text(" ".join(f"w{(i * i) % 61}" for i in range(words)))
    return folder


def process(name, *arguments):
    return [sys.executable, "-m", f"isentrope.commands.{name}", *map(str, arguments)]


def command(name, *arguments, stdout=None):
    """Runs a command in this process, because imports take most of its time."""
    main = importlib.import_module(f"isentrope.commands.{name}").main
    out, err = io.StringIO() if stdout is None else stdout, io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(map(str, arguments)))
    return SimpleNamespace(returncode=code, stdout=stdout or out.getvalue(), stderr=err.getvalue())


def command_of_its_own(name, *arguments, **options):
    return subprocess.run(process(name, *arguments), capture_output=True, text=True, **options)


def refused(name, result, words):
    assert result.returncode == 2, result.stderr  # progress and log lines of transformers may come before
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"isentrope {name}: ") and words in last, result.stderr
    assert "Traceback" not in result.stderr and "report a bug" not in result.stderr
