"""make bench-gpu on one tiny shape of each kind, so that it runs the first time somebody has a device."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[3] / "bench/gpu.py"


def test_clocks_are_warmed_for_as_long_as_it_says(monkeypatch):
    """By calls of 4 ms, or in the interpreter by one."""
    monkeypatch.syspath_prepend(str(BENCH.parent))
    bench = importlib.import_module("gpu")
    done = []
    monkeypatch.setattr(bench, "seconds_of", lambda run, calls: done.append(calls) or (0.004, None))
    assert bench.warmed(None) == 0.004 and done == [1]
    monkeypatch.setattr(bench, "DEVICE", "cuda")
    bench.warmed(None)
    assert 0.05 <= 0.004 * sum(done[2:]) < 0.07


def test_it_runs_and_writes_what_the_report_reads(tmp_path):
    command = [sys.executable, "-W", "ignore", str(BENCH), "--tiny", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "bench.json").read_text())
    peers = {}
    for row in result["runs"][0]["rows"]:
        systems = {system["name"]: system for system in row["systems"]}
        peers[row["work"]["kind"]] = row["best_peer"]
        assert all(system["error"] < 2e-6 for system in systems.values())
        # It has no backward pass on the CPU, and no entropy anywhere.
        assert ("torch FlexAttention" in systems) == (row["work"]["kind"] in ("forward", "decode"))
        assert row["ratio"] > 0 and "statistics_cost" in row
    torchs = dict.fromkeys(("forward", "gradient", "decode"), "torch flash")
    assert peers == torchs | {"entropy": "torch, dense in blocks"}
    # What did not run is said: nothing is left out in silence.
    assert any("cuDNN" in what for what in result["runs"][0]["notes"])
    report = subprocess.run(["isentrope-report", str(tmp_path / "bench.json")], capture_output=True, text=True, check=False)
    assert report.returncode == 0, report.stderr
    assert (tmp_path / "report.html").stat().st_size > 10_000
