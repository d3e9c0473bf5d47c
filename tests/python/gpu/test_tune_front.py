"""isentrope tune as a user types it. Without a device a stand-in takes its place; without a stand-in there is none."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import triton
from stand_in_device import CHIP, StandIn

from isentrope.commands import tune as command
from isentrope.gpu import candidates, processes, tile_table, tuning
from isentrope.gpu.tile_table import Tiles

# A run that Ctrl-C may reach at any candidate: each takes a tenth of a second.
SLOW = """
import sys, time
import torch
from stand_in_device import StandIn
from isentrope.commands import tune
from isentrope.gpu import tuning
measure = StandIn.measure
StandIn.measure = lambda *arguments: time.sleep(0.1) or measure(*arguments)
tune._device = lambda index: torch.device("cpu")
tuning.Device = lambda device: StandIn()
sys.exit(tune.main(["--dims", "64"]))
"""

# The same, compiling for a chip that is not there.
COMPILING = """
import sys
import torch, triton
from stand_in_device import CHIP
from triton.backends.compiler import GPUTarget
from isentrope.commands import tune
from isentrope.gpu import ahead, plan
plan.chip_of = lambda device: CHIP
triton.runtime.driver._active = ahead._Driver(GPUTarget("cuda", 90, 32))
tune._device = lambda index: torch.device("cpu")
sys.exit(tune.main(["--dims", "64", "--jobs", "2"]))
"""


LINE = {"kernel": "few rows", "dtype": "bf16", "columns": 64, "results": "lse", "ms": 1.0, "planned_ms": None}


@pytest.fixture
def device(monkeypatch):
    """Makes the command measure on the stand-in that it returns."""
    found = StandIn(wrong=[Tiles(64, 64, 4, 3)])
    monkeypatch.setattr(command, "_device", lambda index: torch.device("cpu"))
    monkeypatch.setattr(tuning, "Device", lambda device: found)
    return found


def refused(capsys, *arguments):
    """Returns the line that refuses the arguments."""
    status = command.main(list(arguments))
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1) and err.startswith("isentrope tune: "), err
    return err.removeprefix("isentrope tune: ").strip()


def test_the_help_has_an_example_that_runs(file, device, capsys, tmp_path, monkeypatch):
    with pytest.raises(SystemExit) as left:
        command.main(["--help"])
    (example,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("example: isentrope tune "))
    monkeypatch.chdir(tmp_path)
    assert left.value.code == 0 and command.main(shlex.split(example)[3:]) == 0
    assert json.loads((tmp_path / "tiles.json").read_text())["card"] == CHIP.card


def test_it_prints_and_writes_what_it_chose(file, device, capsys):
    assert command.main(["--dims", "64"]) == 0
    out, err = capsys.readouterr()
    assert "forward                bf16    64 lse      128 x 128        8      2    0.6103  1538 %\n" in out
    assert "gave wrong results and were left out" in out and out.endswith(f"wrote {file}\n")
    assert "[tune] checked and timed, " in err and "s left: " in err
    count = len(device.measured)
    assert command.main(["--dims", "64"]) == 0 and len(device.measured) == count, "a second run has nothing to do"
    assert "s left" not in capsys.readouterr().err
    assert command.main(["--dims", "64", "--again"]) == 0 and len(device.measured) == 2 * count


def test_tiles_that_differ_in_options_look_different():
    rows = [{"tiles": tile_table.as_json(tiles), **LINE} for tiles in (
        Tiles(16, 32, 1, 3, occupancy=None), Tiles(16, 32, 1, 3, occupancy=12), Tiles(16, 32, 1, 3, occupancy=None, descriptors=True),
        Tiles(16, 32, 1, 3, 255), Tiles(16, 32, 1, 3, apart=True),
    )]  # fmt: skip
    _, *lines, _ = command.table({"rows": rows, "trials": []}).splitlines()
    assert [line.partition("1.0000")[2].strip() for line in lines] == ["", "12 programs", "descriptors", "255 registers", "apart"]


def test_json_is_all_of_standard_output_or_a_file(file, device, capsys, tmp_path):
    table = tmp_path / "folder/table.json"
    assert command.main(["--dims", "64", "--types", "f16", "--json", "--output", str(table)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(table.read_text()) and not file.exists()
    assert {row["dtype"] for row in printed["rows"]} == {"f16"} and printed["triton"] == triton.__version__
    assert command.main(["--dims", "64", "--types", "f16", "--json", str(tmp_path / "copy.json"), "--output", str(table)]) == 0
    assert capsys.readouterr().out.endswith(f"wrote {table}\n")
    assert json.loads((tmp_path / "copy.json").read_text()) == printed


def test_all_is_every_key_of_a_table(file, device, monkeypatch):
    some = [key for key in candidates.all_keys() if key.columns == 16 and key.results == "lse"]
    monkeypatch.setattr(candidates, "all_keys", lambda: some)
    assert command.main(["--all"]) == 0
    assert {key for key, _ in device.measured} == set(some)
    assert {key.kernel for key in some} > {"masked forward", "few rows"} and {key.dtype for key in some} == {"bf16", "f16", "f32"}


@pytest.mark.parametrize("arguments, what", [
    (["--types", "int8"], "argument --types: invalid choice: 'int8' (choose from "),
    (["--dims", "48"], "argument --dims: invalid choice: 48 (choose from "),
    (["--dims"], "argument --dims: expected at least one argument"),
    (["--jobs", "-1"], "argument --jobs: a whole number from 0 to 1024 is needed; got -1"),
    (["--device", "first"], "argument --device: a whole number from 0 to 1023 is needed; got first"),
    (["--all", "--dims", "64"], "--all is every type and head dimension; got --dims or --types too"),
    (["--all", "--types", "f32"], "--all is every type and head dimension; got --dims or --types too"),
    (["bf16"], "unrecognized arguments: bf16"),
])  # fmt: skip
def test_arguments_that_are_wrong_are_one_line(arguments, what, file, device, capsys):
    assert refused(capsys, *arguments).startswith(what) and device.measured == []


@pytest.mark.parametrize("option", ["--output", "--json"])
def test_a_file_that_cannot_be_written_is_an_error_before_anything_is_measured(option, file, device, capsys, tmp_path):
    (tmp_path / "no-folder").write_text("")
    for path in (tmp_path / "no-folder/table.json", tmp_path):
        assert str(path) in refused(capsys, option, str(path))
    assert device.measured == []


def test_a_cache_folder_that_cannot_be_written_is_an_error(device, capsys, tmp_path, monkeypatch):
    (tmp_path / "no-folder").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-folder"))
    assert str(tmp_path / "no-folder") in refused(capsys)


def test_without_a_device_or_with_another_number_it_says_so(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.xpu, "is_available", lambda: False)
    assert refused(capsys) == "a CUDA or XPU device is needed to time kernels; got none: isentrope doctor says why"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert refused(capsys, "--device", "2") == "--device must be below 2, the number of devices; got 2"


def test_if_no_candidate_is_right_the_first_reason_is_the_error(file, monkeypatch, device, capsys):
    monkeypatch.setattr(StandIn, "compile_all", lambda self, items, jobs: ((*item, "does not compile: no ptxas") for item in items))
    assert command.main(["--dims", "64"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("isentrope tune: none of ") and last.endswith("the first: does not compile: no ptxas")


def alive(group):
    """Returns the processes of a group that still run."""
    files = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            state, _, its_group = file.read_text().rpartition(")")[2].split()[:3]
            files += [file] if int(its_group) == group and state != "Z" else []
    return files


def interrupted(script, when, **environment):
    """Runs a script until it prints `when`, sends Ctrl-C to its processes, and returns its status and what it printed
    from then on."""
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), "start_new_session": True}
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env=os.environ | {"PYTHONPATH": path} | environment, **heard) as running:  # fmt: skip
        next(line for line in running.stderr if when in line)
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=60)
    until = time.monotonic() + 20
    while alive(running.pid):
        assert time.monotonic() < until, "its processes go on"
        time.sleep(0.05)
    return running.returncode, out, err


def test_ctrl_c_keeps_what_is_measured_and_the_next_run_goes_on(file, device, capsys):
    status, out, err = interrupted(SLOW, "checked and timed")
    trials = len(json.loads(file.read_text())["trials"])
    assert (status, out) == (130, "") and trials > 0
    assert err.splitlines()[-1] == f"isentrope tune: interrupted; {trials} candidates are kept in {file}; the next run goes on"
    assert command.main(["--dims", "64"]) == 0
    everything = len(json.loads(file.read_text())["trials"])
    assert len(device.measured) == everything - trials


@pytest.mark.long
def test_ctrl_c_ends_the_processes_that_compile(file, tmp_path):
    status, out, err = interrupted(COMPILING, "compiled: 1 of ", TRITON_CACHE_DIR=str(tmp_path / "kernels"))
    assert (status, out) == (130, "") and not file.exists()
    assert err.splitlines()[-1] == "isentrope tune: interrupted" and "Traceback" not in err
    assert any((tmp_path / "kernels").glob("*/forward_kernel.cubin"))


def ended(number):
    """Answers a number in spite of Ctrl-C, unless it is 2."""
    signal.raise_signal(signal.SIGINT)
    if number == 2:
        os.abort()
    return 10 * number


def never():
    raise ValueError("no driver")


def nothing():
    pass


@pytest.mark.long
def test_a_compiler_that_crashes_costs_one_candidate():
    with processes.Processes(1, ended, [1, 2, 3], nothing) as found:
        answers = [found.next() for _ in range(3)]
    crash = f"its process ended with status {-signal.SIGABRT}"
    assert answers == [(1, 10, ""), (2, None, crash), (3, 30, "")]


@pytest.mark.long
def test_processes_that_cannot_start_are_an_error():
    with processes.Processes(1, ended, [1], never) as found, pytest.raises(RuntimeError, match="a process could not start: no driver"):
        found.next()


@pytest.mark.long
def test_a_process_may_ask_to_be_replaced():
    with processes.Processes(1, process_of, [1, 3], nothing, usable=not_usable) as found:
        first, second = found.next(), found.next()
    assert first.value != second.value and not first.crash and not second.crash


def process_of(item):
    return os.getpid()


def not_usable():
    return False
