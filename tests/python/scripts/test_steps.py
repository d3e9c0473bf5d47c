"""scripts/steps: the time left, a summary of times, and failures."""

import json
import os
import re
import subprocess
import sys

import pytest
from programs import ROOT, loaded

MAKEFILE = """
setup:
	@echo noise of pip
compile:
	@echo '[1/2] Building a'; echo '[2/2] Building b'
ends-early:
	@echo '[1/4] Building a'; echo '[3/4] Linking a'
tests:
	@echo ' 1/12 Test  #1: short_test .........   Passed    0.25 sec'
	@for i in 2 3 4 5 6 7 8 9 10 11 12; do echo "$$i/12 Test #$$i: test_$$i ...***Failed  $$i.5 sec"; done
broken:
	@echo 'error: the reason'; false
"""


@pytest.fixture
def steps():
    return loaded("scripts/steps")


@pytest.fixture
def run(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "Makefile").write_text(MAKEFILE)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return lambda *arguments: subprocess.run([sys.executable, ROOT / "scripts/steps", *arguments], cwd=tmp_path, env=environment,
                                             capture_output=True, text=True, timeout=60)  # fmt: skip


def test_the_summary_has_each_step_and_the_ten_longest_tests(run):
    result = run("setup", "compile", "tests", "--show", "tests")
    lines = result.stdout.splitlines()
    assert result.returncode == 0 and "noise of pip" not in result.stdout and "short_test" in result.stdout
    assert re.fullmatch(r"setup 0:\d\d, compile 0:\d\d, tests 0:\d\d: 0:\d\d in all", lines[-11])
    assert lines[-10].split() == ["12.5", "s", "test_12"] and lines[-1].split() == ["3.5", "s", "test_3"]


def test_a_failure_shows_its_last_lines_and_names_the_log(run, tmp_path):
    result = run("setup", "broken", "tests")
    assert result.returncode == 2 and "error: the reason" in result.stdout and "tests" not in result.stdout
    log = re.search(r"failed with exit status 2; its whole output: (\S+)", result.stdout)[1]
    assert "error: the reason" in (tmp_path / log).read_text()


def test_a_recorded_profile_has_the_time_of_each_tenth(run, tmp_path):
    assert run("setup", "compile", "ends-early", "--record").returncode == 0
    profile = json.loads((tmp_path / "scripts/steps.json").read_text())
    assert len(profile["setup"]["reached"]) == 1 and len(profile["compile"]["reached"]) == 11
    assert len(profile["ends-early"]["reached"]) == 11


def test_the_time_left_only_falls(steps, monkeypatch):
    now = 0.0
    monkeypatch.setattr(steps.time, "monotonic", lambda: now)
    monkeypatch.setattr(steps.threading.Thread, "start", lambda self: None)
    profile = {"build": {"seconds": 100, "reached": [10 * i for i in range(11)]}, "tests": {"seconds": 50, "reached": [0]}}
    countdown = steps.Countdown(["build", "tests"], profile)
    countdown.step = steps.Step("build")
    shown = []
    for now, share in [(0, 0), (5, 0.1), (40, 0.15), (41, 0.6), (200, 0.7), (201, 1)]:  # noqa: B007, monotonic() reads it
        countdown.step.advance(share)
        countdown.line()
        shown.append(countdown.shown)
    assert shown[0] == 150 and shown[-1] >= 50 and shown == sorted(shown, reverse=True)
