"""Files of every program and command: if a call fails, the old or the new file exists, and the status is not 0.

The message names the file. A power cut at any moment would also leave the old file or the new one."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_model

PROGRAM = shutil.which("isentrope")
LAYER = Path(PROGRAM).parent / "libfailing_files.so"
ERRORS = {"write": errno.ENOSPC}  # a full disk; other calls fail with a device error


def run(arguments, folder, fault=""):
    """Returns the output of the process, and its calls on files of the folder: [call, path, ...]."""
    record = folder.parent / "record"
    record.unlink(missing_ok=True)
    preloaded = f"{os.environ.get('LD_PRELOAD', '')}:{LAYER}"  # a sanitizer comes first
    layer = {"LD_PRELOAD": preloaded, "FAILING_FILES_FOLDER": folder, "FAILING_FILES_RECORD": record, "FAILING_FILES_FAULT": fault}
    environment = os.environ | {name: str(value) for name, value in layer.items()}
    done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, env=environment)
    return done, [line.split() for line in record.read_text().splitlines()]


def is_whole(path):
    text = path.read_bytes()
    if path.suffix == ".safetensors":
        head = int.from_bytes(text[:8], "little")
        ends = [tensor["data_offsets"][1] for name, tensor in json.loads(text[8 : 8 + head]).items() if name != "__metadata__"]
        return len(text) == 8 + head + max(ends)
    if path.suffix == ".html":
        return text.endswith(b"</html>\n")
    lines = text.splitlines() if path.suffix == ".jsonl" else [text]
    return all(json.loads(line) for line in lines)


def check_order(calls):
    """Requires that data is flushed before the rename, and the folder after it."""
    renames = [index for index, call in enumerate(calls) if call[0] == "rename" and call[1].endswith(".part")]
    for index in renames:
        _, part, _, path = calls[index]
        *_, last = [i for i in range(index) if calls[i][:2] == ["write", part]]
        assert ["fsync", part] in calls[last:index], (path, calls)
        assert ["fsync", os.path.dirname(path)] in calls[index:], (path, calls)
    written = {call[1] for call in calls if call[0] == "write"}
    assert written == {calls[index][1] for index in renames}, "whatever is written is renamed"
    return [calls[index][3] for index in renames]


def check(arguments, tmp_path, fails=lambda call: True, old="old\n", status=2):
    """Tests the command arguments(folder), which writes into the folder.

    fails: selects the calls that fail, each in a separate run. status: expected exit status; 1 with a traceback."""
    folder = tmp_path / "files"
    folder.mkdir()
    done, calls = run(arguments(folder), folder)
    assert done.returncode == 0, done.stderr
    files = [Path(path) for path in check_order(calls)]
    assert files and all(is_whole(path) for path in files if path.exists())
    met = {}
    for index, (call, path, *_) in enumerate(calls):
        met[call] = met.get(call, 0) + 1
        # Closing a file that was only read or locked loses nothing.
        if call == "unlink" or call == "close" and not path.endswith(".part") or not fails(calls[index]):
            continue
        shutil.rmtree(folder)
        folder.mkdir()
        for file in files if old else ():
            file.write_text(old)
        done, _ = run(arguments(folder), folder, f"{call} {met[call]} {ERRORS.get(call, errno.EIO)}")
        assert done.returncode == status and str(folder) in done.stderr, (call, path, done.stderr)
        assert ("Traceback" in done.stderr) == (status == 1), (call, path, done.stderr)
        for file in filter(Path.is_file, folder.rglob("*")):
            assert file.suffix != ".part", (call, path)
            assert file.suffix == ".lock" or old and file.read_text() == old or is_whole(file), (call, path, file)


@pytest.mark.long  # longer than reports, which are written in the same way
def test_pages_of_the_command_line(tmp_path):
    check(lambda folder: [PROGRAM, "scale", "logn(64)", "--report", folder / "page.html"], tmp_path)


@pytest.mark.long
def test_pages_of_theory(tmp_path):
    check(lambda folder: [PROGRAM, "theory", "report", "--output", folder / "page.html"], tmp_path)


def test_reports(tmp_path):
    result = Path(__file__).parents[2] / "data/extrapolation_result.json"
    check(lambda folder: [PROGRAM, "report", result, "--output", folder / "page.html"], tmp_path)


@pytest.mark.long
def test_trainings(tmp_path):
    (tmp_path / "text.txt").write_text("In the beginning was the word. " * 200)
    small = "--layers 1 --width 8 --heads 2 --batch 4 --train-length 8 --steps 20 --threads 1 --lengths 8,32".split()
    check(lambda folder: [PROGRAM, "extrapolate", "--corpus", tmp_path / "text.txt", "--output", folder / "run", *small],
          tmp_path, old=None)  # fmt: skip


FILES = {  # options of each command that name files
    "inspect": {"--json": "result.json", "--output": "page.html"}, "calibrate": {"--output": "rule.json", "--report": "page.html"},
    "evaluate": {"--resume": "kept.jsonl", "--json": "result.json"},
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
def test_commands_on_models(name, model_folder, tmp_path):
    def arguments(folder):
        files = [word for option, file in FILES[name].items() for word in (option, folder / file)]
        options = [*tiny_model.SHORTEST[name], *files]
        return tiny_model.process(name, model_folder / "tiny", "--text", model_folder / "text.txt", *options)

    if name == "evaluate":
        check(arguments, tmp_path, old=None)
    else:
        check(arguments, tmp_path, lambda call: call[0] in ("write", "rename"))


BENCH = Path(__file__).parents[3] / "bench"


@pytest.mark.long
def test_measurements(tmp_path):
    program = f"import pathlib, sys; sys.path.insert(0, {str(BENCH / 'models')!r})\nfrom saved_results import saved"
    program += "\nsaved(pathlib.Path(sys.argv[1], 'found.json'), lambda: list(range(9)))"
    command = lambda folder: [sys.executable, "-c", program, folder]  # noqa: E731
    check(command, tmp_path, lambda call: call[0] in ("write", "fsync", "rename"), old=None, status=1)
