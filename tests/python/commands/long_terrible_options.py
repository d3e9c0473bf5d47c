"""Every numeric option of every command with invalid numbers: refused by name in one line, or successful."""

import re
import subprocess

import pytest
import tiny_model

TERRIBLE = (
    "99999999999999999999", "-99999999999999999999", "9223372036854775808", "4294967296", "2147483648", "-1", "-0", "0",
    "1e400", "1e-400", "-1e308", "nan", "inf", "-inf", "1.5", "", " ", "12abc", "1,", ",", "0x", "1 2", "+", "--",
    "9" * 400,
)  # fmt: skip
TEXT = "the quick brown fox jumps over the lazy dog. " * 200
SMALL = {  # further arguments of each command, so that it does little and finishes
    "scale": ["logn(4)"], "theory entropy": [], "theory gradient": ["--scores", "cosine"], "theory dimension": [],
    "theory variance": ["--rows", "8"], "theory report": ["-o", "/dev/null"],
    "bench": ["shape=1x1x2x2x2"], "check": ["--generate", "2", "--work", "1000"],
    "extrapolate": ["--corpus", "CORPUS", "--layers", "1", "--width", "8", "--heads", "1", "--steps", "1", "--batch",
                    "1", "--train-length", "8", "--lengths", "8", "--evaluation-tokens", "8", "--rules", "standard",
                    "--rescaled", "none", "--quiet", "--overwrite", "--output", "OUTPUT"],
}  # fmt: skip
LISTS = {"--lengths", "--dims", "--hold"}  # options whose values are texts with numbers
ALSO = {  # alternative words in errors: the requested item, or the missing one
    "--target": "entropy", "--test-share": "validate and test", "--length": "texts", "--seed": "LINE", "--work": "LINE",
}  # fmt: skip
MODEL_COMMANDS = {
    "inspect": ["--texts", "--max-length"], "calibrate": ["--length", "--texts", "--passages", "--lengths"],
    "evaluate": ["--lengths", "--passages", "--chunk"], "doctor": ["--seconds"],
    "check": ["--generate", "--seed", "--work"],
}  # fmt: skip


def isentrope(command, *arguments):
    return subprocess.run(["isentrope", *command.split(), *arguments], capture_output=True, text=True, timeout=60)


def numeric_options(command):
    """Returns the options that take a number according to the help, and those of `LISTS`."""
    options = re.findall(r"^ +(?:-\w,)?(--[\w-]+) (\w+)", isentrope(command, "--help").stdout, re.M)
    return [name for name, kind in options if kind in ("INT", "UINT", "FLOAT") or name in LISTS]


def replaced(arguments, option, value):
    """Returns the arguments with this option in place of an earlier value."""
    changed = list(arguments)
    if option in changed:
        index = changed.index(option)
        del changed[index : index + 2]
    return [*changed, f"{option}={value}"]  # one word, so that a minus sign begins no option


def complaint(option, done):
    """Returns a description of a wrong response; None if it is right."""
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines()
    if done.returncode != 2 or not lines:
        return f"exit status {done.returncode}: {done.stderr[-300:]}"
    if len(lines[-1]) > 2000 or "Traceback" in done.stderr:
        return f"no message: {done.stderr[-300:]}"
    name = option.strip("-")
    names = rf"\b({name}|{name.rstrip('s')}|{ALSO.get(option, name)})\b"
    return None if re.search(names, lines[-1]) else lines[-1][:300]


def complaints(option, call, values=TERRIBLE):
    return {value: found for value in values if (found := complaint(option, call(value))) is not None}


@pytest.mark.parametrize("command", SMALL)
def test_options_of_the_programs(tmp_path, command):
    (tmp_path / "corpus.txt").write_text(TEXT)
    places = {"CORPUS": str(tmp_path / "corpus.txt"), "OUTPUT": str(tmp_path / "output")}
    small = [places.get(word, word) for word in SMALL[command]]
    assert isentrope(command, *small).returncode == 0
    options = numeric_options(command)
    assert options
    for option in options:
        assert not complaints(option, lambda value: isentrope(command, *replaced(small, option, value)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_model.save(tiny_model.model(num_hidden_layers=1), tmp_path_factory.mktemp("tiny"), 4000)


@pytest.mark.parametrize("command, option", [(command, option) for command in ("inspect", "calibrate", "evaluate")
                                             for option in MODEL_COMMANDS[command]])  # fmt: skip
def test_options_of_the_commands_on_models(folder, command, option):
    small = {
        "inspect": ["--texts", "1", "--max-length", "64"],
        "calibrate": ["--rope", "yarn:2", "--length", "256", "--texts", "1", "--passages", "0"],
        "evaluate": ["--lengths", "0", "256", "--passages", "1", "--chunk", "128"],
    }[command]

    def call(*arguments):
        return tiny_model.command(command, folder / "tiny", "--text", folder / "text.txt", *arguments)

    assert call(*small).returncode == 0
    if option == "--lengths" and command == "evaluate":
        small = small[3:]
    if option == "--lengths" and command == "calibrate":
        small = [*small[:-1], "1"]
    assert not complaints(option, lambda value: call(*replaced(small, option, value)))


@pytest.mark.parametrize("command, option", [(command, option) for command in ("doctor", "check")
                                             for option in MODEL_COMMANDS[command]])  # fmt: skip
def test_options_of_the_commands_without_a_model(command, option):
    values = [value for value in TERRIBLE if value not in ("0", "-0")]  # no problems at all are a check of many seconds
    assert not complaints(option, lambda value: tiny_model.command(command, f"{option}={value}"), values)
