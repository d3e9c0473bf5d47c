"""make bench-gpu on one tiny shape of each kind, so that it runs the first time somebody has a device."""

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[3] / "bench/gpu.py"


def test_it_runs_and_writes_what_the_report_reads(tmp_path):
    command = [sys.executable, "-W", "ignore", str(BENCH), "--tiny", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "bench.json").read_text())
    peers = {}
    for row in result["runs"][0]["rows"]:
        systems = {system["name"]: system for system in row["systems"]}
        peers[row["work"]["kind"]] = row["best_peer"]
        assert systems["isentrope"]["error"] < 2e-6 and systems[row["best_peer"]]["error"] < 2e-6
        assert row["ratio"] > 0 and "statistics_cost" in row
    torchs = dict.fromkeys(("forward", "gradient", "decode"), "torch flash")
    assert peers == torchs | {"entropy": "torch, dense in blocks"}
    # What did not run is said: nothing is left out in silence.
    assert any("cuDNN" in what for what in result["runs"][0]["notes"])
    report = subprocess.run(["isentrope-report", str(tmp_path / "bench.json")], capture_output=True, text=True, check=False)
    assert report.returncode == 0, report.stderr
    assert (tmp_path / "report.html").stat().st_size > 10_000
