"""The oldest supported Triton, which torch 2.10 and 2.11 bring. It lays operands of products out wrongly (decision 35)."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
OLDEST = "3.6.0"


def scan(*options: str) -> str:
    """Runs layouts.py with that Triton, which scripts/setup installs if necessary, and returns what it prints."""
    folder = subprocess.run([ROOT / "scripts/setup", "--triton", OLDEST], check=True, capture_output=True, text=True).stdout.strip()
    path = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(ROOT / "tests/python/gpu/layouts.py"), *options]
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path})
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout
