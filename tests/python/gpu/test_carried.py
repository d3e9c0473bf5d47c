"""Programs of the carried folder: a run continues where the last one stopped, and finds precompiled kernels."""

import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from programs import ROOT
import triton

from bench.carried import kernels, steps
from bench.carried import run as carried_run
from bench.gpu import works as work
from isentrope.gpu import pairwise, plan, tile_table


def test_a_second_run_goes_on_from_the_first(tmp_path):
    first = steps.Run(tmp_path, 100, tiny=True)
    first.verdicts["a line"] = {"line": "a line", "outcome": "PASSED"}
    first.calls["a call"] = {"host_us": {}}
    first.rows["a shape"] = {"work": {"name": "a shape"}, "systems": []}
    first.write()
    second = steps.Run(tmp_path, 100, tiny=True)
    assert (second.verdicts, second.calls, second.rows) == (first.verdicts, first.calls, first.rows)
    file = tmp_path / "bench.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"machine": "another"}))
    assert steps.Run(tmp_path, 100, tiny=True).verdicts == {}
    file.write_text("{")
    assert steps.Run(tmp_path, 100, tiny=True).verdicts == {}


def test_what_there_is_no_time_for_is_noted(tmp_path):
    run = steps.Run(tmp_path, 0, tiny=True)
    assert list(run.until_budget("shapes", [1, 2, 3], 1.0)) == []
    record = json.loads((tmp_path / "bench.json").read_text())
    assert record["runs"][0]["notes"]["shapes"].startswith("3 of 3 were left out")
    run.budget = 1000
    assert list(run.until_budget("shapes", [1, 2, 3], 1.0)) == [1, 2, 3] and run.notes == {}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Returns a function that runs the folder with these options, and returns its status and bench.json."""
    monkeypatch.setenv("TRITON_CACHE_DIR", "")  # restored, since a run sets it

    def run(*options):
        status = carried_run.main(["--tiny", "--output", str(tmp_path), *options])
        return status, json.loads((tmp_path / "bench.json").read_text())

    return run


def test_calls_and_decode_steps_are_timed_once(run, tmp_path, monkeypatch, capsys):
    """Ctrl-C after the first of these steps, then the same command again, then once more."""
    only = ("--only", "calls,decode")
    with monkeypatch.context() as changed:
        changed.setitem(steps.FUNCTIONS, "decode", interrupt)
        status, first = run(*only)
    assert status == 130 and len(first["calls"]) == 2 and first["decode"] == {}
    assert f"[run] interrupted; the same command goes on from {tmp_path}/bench.json" in capsys.readouterr().err
    for row in first["calls"].values():
        assert all(row["host_us"][name] > 0 for name in ("isentrope", "isentrope, lse alone", "torch flash"))
    monkeypatch.setattr(steps.gpu, "host_microseconds", lambda *_: -1)
    status, second = run(*only)
    assert status == 0 and second["calls"] == first["calls"]
    for page in (0, 16):
        systems = [row["system"] for row in second["decode"].values() if row["work"]["page"] == page]
        assert systems == ["isentrope, lse alone", "isentrope", "torch flash"]
    assert second["checks"]["verdicts"] == {} and second["runs"][0]["rows"] == []
    for row in second["decode"].values():
        assert row["seconds"] > 0 and row["graph_error"] == "a CUDA graph needs a CUDA device; got none"
    monkeypatch.setattr(steps.gpu, "warmed", lambda *_: -1)
    status, third = run(*only)
    assert (status, third["calls"], third["decode"]) == (0, first["calls"], second["decode"])
    # Seconds have one digit, and the third run may take less than half of it.
    assert "goes on from" in capsys.readouterr().out and third["seconds"] >= second["seconds"] > 0


def interrupt(*_):
    raise KeyboardInterrupt


def test_a_failed_check_is_exit_status_1_and_errors_are_tried_again(run, monkeypatch):
    verdicts = {"a": {"line": "a", "outcome": "FAILED"}, "b": {"line": "b", "outcome": "ERROR"}}
    monkeypatch.setitem(steps.FUNCTIONS, "check", lambda run, share: run.verdicts.update(verdicts))
    status, record = run("--only", "check")
    assert status == 1 and [verdict["line"] for verdict in record["checks"]["failed"]] == ["a", "b"]
    monkeypatch.setitem(steps.FUNCTIONS, "check", lambda run, share: None)
    assert run("--only", "check")[1]["checks"]["outcomes"] == {"FAILED": 1}


def test_a_device_that_became_unusable_ends_the_run(run, monkeypatch, capsys):
    called = []
    monkeypatch.setattr(steps, "gpu_works", lambda: False)
    for name in ("calls", "decode"):
        monkeypatch.setitem(steps.FUNCTIONS, name, lambda *_, name=name: called.append(name))
    assert run("--only", "calls,decode")[0] == 1 and called == ["calls"]
    assert "[run] calls made the device unusable; the same command goes on from" in capsys.readouterr().err


@pytest.mark.parametrize("options, what", [
    ([], "a CUDA device is needed; got none (--tiny goes the same way without)"),
    (["--tiny", "--output", "no-folder/results"], "Not a directory: 'no-folder/results'"),
])  # fmt: skip
def test_what_keeps_a_run_from_beginning_is_one_line(options, what, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("no-folder").write_text("")
    assert carried_run.main(options) == 2 and not Path("results").exists()
    err = capsys.readouterr().err
    assert err.startswith("[run] ") and err.endswith(what + "\n") and err.count("\n") == 1


def test_every_minute_has_a_line_and_every_result_is_in_the_file(tmp_path):
    run, lines = steps.Run(tmp_path, 100, tiny=True), []
    run.begin("calls")
    run.write()
    with steps.every_minute(lambda: lines.append(run.status()), 0.02):
        for name in run.until_budget("calls", ["a call", "another"], 1.0):
            assert list(json.loads((tmp_path / "bench.json").read_text())["calls"]) == ["a call"] * (name == "another")
            run.calls[name] = {"host_us": {}}
            count = len(lines)
            while len(lines) == count:
                time.sleep(0.005)
    assert lines[0] == "[run] 0 of 100 s: calls, 0 of 2" and lines[-1] == "[run] 0 of 100 s: calls, 1 of 2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns the carried folder, with a package that has no files."""
    package = tmp_path_factory.mktemp("package") / "python"
    (package / "isentrope").mkdir(parents=True)
    (package.parent / "bin").mkdir()
    (package.parent / "bin/isentrope").write_text("")
    made = package.parent / "carry"
    subprocess.run([ROOT / "scripts/bench-gpu-carry", package, made], check=True, stdout=subprocess.DEVNULL)
    return made


def carried(folder, tmp_path, *options):
    """Runs the folder by a Python that has no torch."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    command = ["bash", folder / "run", *options]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ | {"PYTHON": str(python)})


def test_the_folder_helps_and_refuses_without_torch_too(folder, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results/bench.json").write_text("{}")
    helped = carried(folder, tmp_path, "--help")
    assert helped.returncode == 0 and helped.stdout.startswith("usage: bash run ") and "--only check,tune" in helped.stdout
    refused = carried(folder, tmp_path, "--only", "tiles")
    assert refused.returncode == 2 and "must be some of check,calls,decode,shapes,tune,rest; got tiles" in refused.stderr
    without = carried(folder, tmp_path, "--tiny")
    assert (without.returncode, without.stdout) == (2, "")
    assert without.stderr == "[run] No module named 'torch'; PYTHON=FILE bash run takes another Python\n"


def test_steps_are_chosen_by_name():
    assert carried_run.steps("tune,check") == ["check", "tune"]
    with pytest.raises(Exception, match="must be some of check,calls,decode,shapes,tune,rest; got tiles"):
        carried_run.steps("check,tiles")
    assert list(carried_run.STEPS) == ["check", "calls", "decode", "shapes", "tune", "rest"]
    assert list(steps.FUNCTIONS) == list(carried_run.STEPS)
    shares = list(carried_run.STEPS.values())
    assert shares == sorted(shares) and shares[-1] == 1.0


def test_the_lines_that_were_wrong_on_a_device_come_first():
    lines = work.problem_lines()
    assert lines[: len(pairwise.ONCE_FAILED)] == pairwise.ONCE_FAILED
    assert set(work.COMMON) < set(lines) and len(set(lines)) == len(lines) > 150


def test_the_page_says_how_many_calls_are_timed():
    page = (ROOT / "docs/gpu.md").read_text()
    assert f"{len(work.DECODED)} decode steps (also under a CUDA graph) and {len(work.SHAPES)} shapes" in page


def test_kernels_of_timed_calls_are_compiled_before_most_checks(monkeypatch):
    """In a run these calls would compile one after the other, and checks on every core."""
    monkeypatch.setattr(kernels.works, "problem_lines", lambda: [*pairwise.ONCE_FAILED, "another line"])
    monkeypatch.setattr(plan, "chip_of", lambda _: plan.Chip("sm90", 132))
    tasks = kernels.tasks()
    works = [what for kind, what in tasks if kind == "work"]
    assert tasks[: len(pairwise.ONCE_FAILED)] == [("line", line) for line in pairwise.ONCE_FAILED]
    assert tasks.index(("work", works[-1])) < tasks.index(("line", work.COMMON[0])) < tasks.index(("line", "another line"))
    assert {one for one, _ in works} == {*work.CALLS, *work.DECODED, *work.SHAPES}
    assert len(set(tasks)) == len(tasks)


def test_compiled_kernels_of_other_sources_are_deleted(tmp_path, monkeypatch):
    archive = tmp_path / "kernels.tar.xz"
    (kernels.cache_of(archive) / "kernel").mkdir()
    assert (kernels.cache_of(archive) / "kernel").exists()
    monkeypatch.setattr(tile_table, "kernels_hash", lambda: "another")
    assert not (kernels.cache_of(archive) / "kernel").exists()


def test_an_archive_is_used_for_its_chip_and_version_alone(tmp_path):
    entry = tmp_path / "made" / "HASH"
    entry.mkdir(parents=True)
    for name in ("forward_kernel.cubin", "forward_kernel.json", "__grp__forward_kernel.json", "forward_kernel.source"):
        (entry / name).write_text("{}")
    archive = tmp_path / "kernels.tar.xz"
    assert kernels.pack(tmp_path / "made", archive, "sm_90") == 1
    assert len(tarfile.open(archive).getnames()) == 3
    assert "they are compiled here" in kernels.unpack(tmp_path / "none", tmp_path / "cache", 90)
    assert "this is sm_80" in kernels.unpack(archive, tmp_path / "cache", 80)
    for _ in range(2):
        assert kernels.unpack(archive, tmp_path / "cache", 90) == "1 kernels were compiled before"
    group = json.loads((tmp_path / "cache/HASH/__grp__forward_kernel.json").read_text())["child_paths"]
    assert group == {name: str(tmp_path / "cache/HASH" / name) for name in ("forward_kernel.cubin", "forward_kernel.json")}


COMPILE = """
import sys
from bench.carried import kernels
kernels.start_worker(90)
assert kernels.compile_task(("line", "dt=bf16 shape=1x2:1x65x70x32 mask=causal:bottom_right")) == ""
"""


@pytest.mark.long
def test_kernels_that_were_compiled_before_are_not_compiled_again(tmp_path):
    def compile_into(cache):
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"TRITON_CACHE_DIR": str(cache), "TRITON_INTERPRET": "0", "PYTHONPATH": path}
        subprocess.run([sys.executable, "-c", COMPILE], env=environment, check=True)
        return {file: file.stat().st_mtime_ns for file in cache.glob("*/*.cubin")}

    (tmp_path / "made").mkdir()
    made = compile_into(tmp_path / "made")
    count = kernels.pack(tmp_path / "made", tmp_path / "kernels.tar.xz", "sm_90")
    assert count == len(made) >= 3
    assert kernels.unpack(tmp_path / "kernels.tar.xz", tmp_path / "cache", 90).startswith(f"{count} kernels")
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "cache").glob("*/*.cubin")}
    assert compile_into(tmp_path / "cache") == before and len(before) == count, triton.__version__
