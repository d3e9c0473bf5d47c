"""isentrope inspect where something is wrong with the model, the files or the output: one line, exit status 2."""

import contextlib
import io
import json
import os
import pty
import stat
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import transformers as hf
from test_inspect import folder, model, texts  # noqa: F401

import isentrope
from isentrope.inspect_command import main


def command(*arguments, stdout=None):
    """In this process, since most of a command's time goes into its imports."""
    out, err = io.StringIO() if stdout is None else stdout, io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(map(str, arguments)))
    return SimpleNamespace(returncode=code, stderr=err.getvalue())


def refused(result, words):
    # Progress and what transformers logs may come before.
    assert result.returncode == 2, result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith("isentrope inspect: ") and words in last, result.stderr
    assert "Traceback" not in result.stderr and "report a bug" not in result.stderr


def test_weights_that_are_nan_are_named():
    made = model()
    made.model.layers[1].self_attn.q_proj.weight.data[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"must compute numbers; got NaN in the 2\. of its 2 attentions"):
        isentrope.inspect(made, texts())


def _cut(path):
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    "name, damage",
    [
        ("model.safetensors", _cut),
        ("model.safetensors", lambda path: path.write_bytes(b"\xff" * 64)),
        ("model.safetensors", lambda path: path.unlink()),
        ("config.json", lambda path: path.write_text("{")),
        ("config.json", lambda path: path.write_text("[]")),
        ("config.json", lambda path: path.write_text('{"model_type": "llama", "num_attention_heads": 0}')),
        ("config.json", lambda path: path.write_text('{"model_type": "llama", "hidden_size": "wide"}')),
        ("tokenizer.json", _cut),
        ("tokenizer.json", lambda path: path.write_text("{}")),
    ],
)
def test_damaged_files_end_in_one_line(folder, name, damage):  # noqa: F811
    damage(folder / "tiny" / name)
    refused(command(folder / "tiny", "--text", folder / "text.txt"), "[inspect] MODEL must be one that transformers loads")


def test_a_damaged_gguf_file(folder):  # noqa: F811
    for content in (b"", b"GGUF", b"GGUF\x03\x00\x00\x00" + b"\xff" * 64):
        (folder / "bad.gguf").write_bytes(content)
        refused(command(folder / "bad.gguf", "--text", folder / "text.txt"), "MODEL must be one that transformers loads")


def test_code_that_a_model_brings_is_refused_without_a_question(folder, monkeypatch):  # noqa: F811
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    config = json.loads((folder / "tiny/config.json").read_text())
    config |= {"model_type": "strange", "auto_map": {"AutoConfig": "strange.Config"}}
    (folder / "tiny/config.json").write_text(json.dumps(config))
    (folder / "tiny/strange.py").write_text("open('ran', 'w')\nfrom transformers import LlamaConfig as Config\n")
    refused(command(folder / "tiny", "--text", folder / "text.txt"), "brings code of its own, which is not run")
    assert not (folder / "ran").exists()


def test_a_token_beyond_the_vocabulary(folder):  # noqa: F811
    made = hf.AutoModelForCausalLM.from_pretrained(folder / "tiny")
    made.resize_token_embeddings(20)
    made.save_pretrained(folder / "tiny")
    refused(command(folder / "tiny", "--text", folder / "text.txt"), "IndexError")


def test_texts_that_never_end(folder):  # noqa: F811
    refused(command(folder / "tiny", "--text", "/dev/zero"), "must hold at most 256 MiB")
    refused(command(folder / "tiny", "--text", folder), "Is a directory")


def test_output_that_is_lost(folder):  # noqa: F811
    ordinary = (folder / "tiny", "--text", folder / "text.txt", "--texts", 1, "--max-length", 8)
    with open("/dev/full", "w") as full:
        refused(command(*ordinary, stdout=full), "No space left on device")
    refused(command(*ordinary, "--json", "/dev/full"), "No space left on device")
    call = [sys.executable, "-m", "isentrope.inspect_command", "--help"]
    for where, reason in (("> /dev/full", "No space left on device"), (">&-", "it is closed")):
        words = ["/bin/sh", "-c", f'"$@" {where}', "sh", *call]
        result = subprocess.run(words, stderr=subprocess.PIPE, text=True)
        refused(result, reason)
        assert result.stderr.count("\n") == 1, result.stderr


def test_results_go_through_links_and_into_devices(folder):  # noqa: F811
    (folder / "link.json").symlink_to("target.json")
    result = command(folder / "tiny", "--text", folder / "text.txt", "--texts", 1, "--max-length", 8,
                     "--json", folder / "link.json", "--output", "/dev/null")  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert (folder / "link.json").is_symlink() and json.loads((folder / "target.json").read_text())["texts"] == 1
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode) and not list(folder.glob("*.part"))


def test_names_that_are_not_text(folder):  # noqa: F811
    text = (folder / "text.txt").rename(folder / os.fsdecode(b"caf\xe9.txt"))
    result = command(folder / "tiny", "--text", text, "--max-length", 8, "--json", folder / "out.json",
                     "--output", folder / "page.html")  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert json.loads((folder / "out.json").read_text())["text"] == "caf\ufffd.txt"


def test_progress_rewrites_its_line_on_a_terminal_alone(folder):  # noqa: F811
    ordinary = (folder / "tiny", "--text", folder / "text.txt", "--texts", 2, "--max-length", 8)
    lines = command(*ordinary).stderr.splitlines()
    assert [line for line in lines if "text" in line] == ["[inspect] text 1 of 2", "[inspect] text 2 of 2"]
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal, contextlib.redirect_stderr(terminal):
        assert main(list(map(str, ordinary))) == 0
        assert "\r[inspect] text 1 of 2\r[inspect] text 2 of 2" in os.read(ours, 1 << 16).decode()
