"""Files, output, invalid numbers and damaged models for all commands: one line, exit status 2, nothing lost."""

import contextlib
import errno
import importlib
import io
import json
import os
import pty
import select
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers as hf
from tiny_model import SHORTEST as READERS
from tiny_model import command, process, refused

import isentrope
from isentrope.__main__ import main

PAGE = {"inspect": "--output", "calibrate": "--report", "evaluate": "--output"}
# One command that loads models runs all cases in minutes; the others run their own cases.
OTHERS = [pytest.param(name, marks=pytest.mark.long) for name in READERS if name != "inspect"]
every_reader = pytest.mark.parametrize("name", ["inspect", *OTHERS])
every_command = pytest.mark.parametrize("name", ["inspect", pytest.param("check", marks=pytest.mark.long), *OTHERS])
# A command that loads no model is interrupted in a third of the time.
LOADERS = [pytest.param(name, marks=pytest.mark.long) for name in READERS]


@pytest.fixture
def folder(model_folder, tmp_path):
    """Returns a folder with a model and a text, which tests may damage."""
    return shutil.copytree(model_folder, tmp_path, dirs_exist_ok=True)


def ordinary(name, folder):
    """Returns the arguments of a short run, without options for results."""
    if name == "check":
        return ["shape=1x1x2x2x2"]
    return [folder / "tiny", "--text", folder / "text.txt", *READERS[name]]


def shell(words, name, *arguments):
    """Runs a shell command, in which "$@" is the command."""
    call = ["/bin/sh", "-c", words, "sh", *process(name, *arguments)]
    return subprocess.run(call, capture_output=True, text=True)


@every_command
def test_output_that_is_lost(name, folder):
    result = shell('"$@" > /dev/full', name, *(ordinary(name, folder) if name == "check" else ["--help"]))
    refused(name, result, "cannot write standard output: No space left on device")
    assert result.stderr.count("\n") == 1, result.stderr
    with open("/dev/full", "w") as full:
        result = command(name, *(["--help"] if name == "check" else ordinary(name, folder)), stdout=full)
        refused(name, result, "cannot write standard output: No space left on device")


@pytest.mark.long
def test_output_that_is_closed(folder):
    result = shell('"$@" >&-', "inspect", *ordinary("inspect", folder), PAGE["inspect"], folder / "page.html")
    refused("inspect", result, "cannot write standard output: it is closed")
    assert result.stderr.count("\n") == 1 and not (folder / "page.html").exists()


@every_reader
def test_results_that_cannot_be_written(name, folder):
    refused(name, command(name, *ordinary(name, folder), "--json", "/dev/full"), 'cannot write "/dev/full": No space left')
    refused(name, command(name, *ordinary(name, folder), PAGE[name], "/dev/full"), 'cannot write "/dev/full": No space left')
    for option in ("--json", PAGE[name]):
        result = command(name, folder / "no model", "--text", folder / "text.txt", *READERS[name], option, folder)
        refused(name, result, f'cannot write "{folder}": it is a folder')


@every_reader
def test_results_go_through_links_and_into_devices(name, folder):
    (folder / "link.json").symlink_to("target.json")
    (folder / "target.json").write_text("old")
    (folder / "target.json").chmod(0o640)
    result = command(name, *ordinary(name, folder), "--json", folder / "link.json", PAGE[name], "/dev/null")
    assert result.returncode == 0, result.stderr
    assert (folder / "link.json").is_symlink() and json.loads((folder / "target.json").read_text())["text"] == "text.txt"
    assert stat.S_IMODE((folder / "target.json").stat().st_mode) == 0o640
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode) and not list(folder.glob("*.part"))


@pytest.mark.long
@every_reader
def test_results_go_into_pipes_and_behind_what_is_there(name, folder):
    (folder / "page.html").write_text("before\n")
    result = shell(f'"$@" 3>> {folder}/page.html | cat', name, *ordinary(name, folder), "--json", "/dev/stdout",
                   PAGE[name], "/dev/fd/3")  # fmt: skip
    *table, document = result.stdout.splitlines()
    assert table and json.loads(document)["text"] == "text.txt", result.stderr
    page = (folder / "page.html").read_text()
    assert page.startswith("before\n<!") and page.endswith("</html>\n")

    os.mkfifo(folder / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((folder / "pipe").read_text()))
    reader.start()
    assert command(name, *ordinary(name, folder), "--json", folder / "pipe").returncode == 0
    reader.join()
    assert json.loads(got[0])["text"] == "text.txt" and (folder / "pipe").is_fifo()


@every_reader
@pytest.mark.parametrize("words", [["--json"], ["--json", "-"]])
def test_json_without_a_file_is_printed_alone(name, words, folder):
    result = command(name, *ordinary(name, folder), *words)
    assert result.returncode == 0 and json.loads(result.stdout)["text"] == "text.txt", result.stderr


@every_reader
def test_names_that_are_not_text(name, folder):
    text = (folder / "text.txt").rename(folder / os.fsdecode(b"caf\xe9.txt"))
    result = command(name, folder / "tiny", "--text", text, *READERS[name], "--json", folder / "out.json",
                     PAGE[name], folder / "page.html")  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert json.loads((folder / "out.json").read_text())["text"] == "caf\ufffd.txt"
    # transformers refuses a folder of such a name before anything is computed.
    model = (folder / "tiny").rename(folder / os.fsdecode(b"mod\xe9l"))
    refused(name, command(name, model, "--text", text, *READERS[name]), "UnicodeEncodeError")


@every_reader
def test_without_the_program_that_makes_pages_nothing_is_run(name, folder, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    result = command(name, folder / "no model", "--text", folder / "text.txt", *READERS[name], PAGE[name], folder / "page.html")
    refused(name, result, "isentrope, which makes the page, must be next to this command or on PATH; got none")


@every_reader
def test_weights_that_are_nan_are_named(name, folder):
    llama = hf.AutoModelForCausalLM.from_pretrained(folder / "tiny")
    llama.model.layers[1].self_attn.q_proj.weight.data[0, 0] = torch.nan
    llama.save_pretrained(folder / "tiny")
    refused(name, command(name, *ordinary(name, folder)), "must be finite; got ")
    if name != "evaluate":  # it measures losses
        with pytest.raises(ValueError, match="the model's attention must be finite; got NaN in call 2 of 2"):
            tokens = [torch.arange(300) % 61]
            isentrope.inspect(llama, tokens) if name == "inspect" else isentrope.calibrate(llama, tokens, rope="yarn:4")


def _cut(path):
    path.write_bytes(path.read_bytes()[:-100])


@every_reader
@pytest.mark.parametrize(
    "file, damage",
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
def test_damaged_files_end_in_one_line(name, folder, file, damage):
    damage(folder / "tiny" / file)
    refused(name, command(name, *ordinary(name, folder)), f"[{name}] MODEL must be one that transformers loads")


@every_reader
def test_a_damaged_gguf_file(name, folder):
    for content in (b"", b"GGUF", b"GGUF\x03\x00\x00\x00" + b"\xff" * 64):
        (folder / "bad.gguf").write_bytes(content)
        result = command(name, folder / "bad.gguf", "--text", folder / "text.txt", *READERS[name])
        refused(name, result, f"[{name}] MODEL must be one that transformers loads")


@every_reader
def test_code_that_a_model_brings_is_refused_without_a_question(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    config = json.loads((folder / "tiny/config.json").read_text())
    config |= {"model_type": "strange", "auto_map": {"AutoConfig": "strange.Config"}}
    (folder / "tiny/config.json").write_text(json.dumps(config))
    (folder / "tiny/strange.py").write_text("open('ran', 'w')\nfrom transformers import LlamaConfig as Config\n")
    refused(name, command(name, *ordinary(name, folder)), "brings code of its own, which is not run")
    assert not (folder / "ran").exists()


@every_reader
def test_a_token_beyond_the_vocabulary(name, folder):
    llama = hf.AutoModelForCausalLM.from_pretrained(folder / "tiny")
    llama.resize_token_embeddings(20)
    llama.save_pretrained(folder / "tiny")
    refused(name, command(name, *ordinary(name, folder)), "must be tokens of the model's vocabulary, 0 to 19; got")


@every_reader
def test_what_cannot_be_read(name, folder):
    refused(name, command(name, folder, "--text", folder / "text.txt", *READERS[name]), "must be a folder with config.json or a GGUF file")
    refused(name, command(name, folder / "tiny", "--text", folder / "none.txt", *READERS[name]), "none.txt")
    refused(name, command(name, folder / "tiny", "--text", "/dev/zero", *READERS[name]), "must hold at most 256 MiB")
    refused(name, command(name, folder / "tiny", "--text", folder, *READERS[name]), "Is a directory")


TEXTS, TOKENS, EDGES = "from 1 to 10000 is", "from 1 to 100000000 is", "from 0 to 100000000 is"


@pytest.mark.parametrize(
    "name, option, value, limits",
    [
        ("inspect", "--texts", 10**9, TEXTS), ("inspect", "--texts", 0, TEXTS), ("inspect", "--max-length", 10**9, TOKENS),
        ("calibrate", "--texts", 10**9, TEXTS), ("calibrate", "--length", 10**9, TOKENS),
        ("calibrate", "--passages", -3, "from 0 to 10000 is"), ("calibrate", "--lengths", -256, EDGES),
        ("evaluate", "--passages", 10**9, TEXTS), ("evaluate", "--chunk", 0, TOKENS), ("evaluate", "--lengths", "9" * 5000, EDGES),
        ("check", "--generate", -1, "from 0 to 10000000 is"), ("check", "--seed", -1, "from 0 to 9223372036854775807 is"),
        ("check", "--work", 0, "from 1 to 1000000000000 is"), ("check", "--generate", "many", "from 0 to 10000000 is"),
    ],
)  # fmt: skip
def test_numbers_nobody_means(name, option, value, limits, folder):
    result = command(name, *ordinary(name, folder), option, value)
    refused(name, result, f"argument {option}: a whole number {limits[:-3]} is needed; got {str(value)[:60]}")
    assert result.stderr.count("\n") == 1 and len(result.stderr) < 200


@pytest.mark.long
def test_a_list_of_problems_that_never_ends():
    result = shell('"$@"', "check", "--file", "/dev/zero")
    refused("check", result, "/dev/zero must hold at most 256 MiB, because it is not a regular file; got more")


def stopped(name, *arguments, when):
    """Sends Ctrl-C to the command when when(its process) returns, and returns the remaining files."""
    # Background jobs of a shell ignore Ctrl-C, and so would their children.
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    call = process(name, *arguments)
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **heard) as running:
        when(running)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate()
    return SimpleNamespace(returncode=running.returncode, stdout=out, stderr=err)


@pytest.mark.parametrize("name", ["check", *LOADERS])
def test_an_interruption_is_one_line(name, folder):
    os.mkfifo(folder / "slow")

    def reads(running):
        threads.append(os.open(folder / "slow", os.O_WRONLY))  # opening blocks until there is a reader
        # A signal before the call that blocks would be heard after it.
        while Path(f"/proc/{running.pid}/stat").read_text().rpartition(")")[2].split()[0] in "RD":  # runs
            time.sleep(0.01)

    threads = []
    arguments = ["--file", folder / "slow"] if name == "check" else [folder / "tiny", "--text", folder / "slow", *READERS[name]]
    result = stopped(name, *arguments, when=reads)
    os.close(threads[0])
    assert (result.returncode, result.stderr) == (130, f"isentrope {name}: interrupted\n")


@pytest.mark.long
def test_what_was_finished_before_an_interruption_is_kept(folder):
    arguments = ["evaluate", folder / "tiny", "--text", folder / "text.txt", "--passages", 40, "--lengths", 0, 512,
                 "--resume", folder / "run.jsonl", "--json", folder / "out.json"]  # fmt: skip
    result = stopped(*arguments, when=lambda running: next(line for line in running.stderr if "[evaluate]" in line))
    assert result.returncode == 130 and not (folder / "out.json").exists()
    assert result.stderr.endswith(f"isentrope evaluate: interrupted; finished passages are kept in {folder}/run.jsonl\n")
    kept = (folder / "run.jsonl").read_text()
    assert 2 <= kept.count("\n") < 41
    assert command(*arguments).returncode == 0
    assert (folder / "run.jsonl").read_text().startswith(kept[: kept.rindex("\n") + 1])
    assert json.loads((folder / "out.json").read_text())["passages"] == 40


def test_progress_rewrites_its_line_on_a_terminal_alone(folder):
    arguments = ["inspect", folder / "tiny", "--text", folder / "text.txt", "--texts", 2, "--max-length", 8]
    lines = command(*arguments).stderr.splitlines()
    assert [line for line in lines if "text" in line] == ["[inspect] text: 1 of 2", "[inspect] text: 2 of 2"]
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal, contextlib.redirect_stderr(terminal):
        main = importlib.import_module("isentrope.commands.inspect").main
        assert main(list(map(str, arguments[1:]))) == 0
        # A terminal delivers output in pieces.
        want, got = b"[inspect] text: 1 of 2\r\x1b[K[inspect] text: 2 of 2\r\n", b""
        while want not in got and select.select([ours], [], [], 30)[0]:
            got += os.read(ours, 1 << 16)
        assert want in got


class FullDisk(io.StringIO):
    """Standard output that fails once the model is loaded."""

    def write(self, text):
        if "[evaluate]" in text:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(text)


def test_a_log_that_is_full_does_not_stop_the_work(folder):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(FullDisk()):
        main = importlib.import_module("isentrope.commands.evaluate").main
        assert main(list(map(str, ordinary("evaluate", folder)))) == 0
    assert "scaled(1.1)" in out.getvalue()


def module(*arguments):
    """Runs python -m isentrope, which needs no installed programs."""
    return subprocess.run([sys.executable, "-m", "isentrope", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [["tune"], ["inspect"], ["check", "--backend", "gpu"]], ids=" ".join)
def test_commands_of_the_package_run_in_python(arguments, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([*arguments, "--help"])
    assert capsys.readouterr().out.startswith(f"usage: isentrope {arguments[0]}")


def test_other_commands_are_the_programs():
    done = module("scale", "standard", "--dim", "64")
    assert done.returncode == 0 and "0.125" in done.stdout, done.stderr


@pytest.mark.long
def test_help_and_errors_are_those_of_the_programs():
    assert module("--help").stdout == subprocess.run(["isentrope", "--help"], capture_output=True, text=True, check=True).stdout
    assert module("no such command").returncode == 2
