"""make bench-gpu on one tiny shape of each kind, so that it runs the first time a device is available."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench/carried/run.py"
SINGLE = "entropy", "variance", "collision", "distance", "max_probability"  # statistics that have a row alone


def test_clocks_are_warmed_for_as_long_as_it_says(monkeypatch):
    """Warms up by calls of 4 ms, or in the interpreter by one call."""
    bench = importlib.import_module("bench.gpu.timing")
    done = []
    monkeypatch.setattr(bench, "seconds_of", lambda run, calls: done.append(calls) or (0.004, None))
    assert bench.warmed(None) == 0.004 and done == [1]
    monkeypatch.setattr(bench, "DEVICE", "cuda")
    bench.warmed(None)
    assert 0.05 <= 0.004 * sum(done[2:]) < 0.07


@pytest.mark.long
def test_it_runs_and_writes_what_the_report_reads(tmp_path):
    command = [sys.executable, "-W", "ignore", str(BENCH), "--tiny", "--only", "calls,shapes", "--output", str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    result = json.loads((tmp_path / "bench.json").read_text())
    torchs = {"torch flash", "torch FlexAttention"}
    peers = {"forward": torchs, "gradient": {"torch flash"}, "entropy": {"torch, dense in blocks"}, "statistics": torchs}
    peers |= {"entropy gradient": {"torch flash"}, "double gradient": set(), "decode": torchs, "decode in pages of 16": torchs}
    assert result["calls"]["forward 1 x 2 x 20 x 16 f32 causal"]["host_us"]["isentrope"] > 0
    assert [row["work"]["kind"] for row in result["runs"][0]["rows"]] == list(peers)
    for row in result["runs"][0]["rows"]:
        systems = {system["name"]: system for system in row["systems"]}
        # FlexAttention has no backward pass on the CPU, and torch's own kernels have no entropy anywhere.
        single = set(SINGLE if row["work"]["kind"] == "statistics" else ())
        ours = {"isentrope", "isentrope, lse alone", *(f"isentrope, {name}" for name in single)}
        assert set(systems) == peers[row["work"]["kind"]] | ours
        assert all(system["error"] < 2e-6 and system.get("gradient_error", 0) < 1e-5 for system in systems.values())
        # The fastest peer depends on the machine; the row must name it. On the CPU nothing else differentiates twice.
        best = min(peers[row["work"]["kind"]], key=lambda name: systems[name]["seconds"], default="isentrope")
        assert row["best_peer"] == best
        assert row["ratio"] == pytest.approx(systems[best]["seconds"] / systems["isentrope"]["seconds"])
        assert "statistics_cost" in row
    assert any("cuDNN" in what for what in result["runs"][0]["notes"])
    report = subprocess.run(["isentrope", "report", str(tmp_path / "bench.json")], capture_output=True, text=True, check=False)
    assert report.returncode == 0, report.stderr
    assert (tmp_path / "report.html").stat().st_size > 10_000
