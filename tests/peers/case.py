"""Interface of adapters to `judges.py`, and helpers that adapters share."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
from json_rows import write_rows


@dataclasses.dataclass
class Case:
    """One published case: `check` raises AssertionError for different results, and ValueError for unsupported
    arguments."""

    name: str
    check: Callable[[], None] | None = None
    left_out: str = ""
    """Why it is not computed; empty if it is."""


def record(path: Path, counts: dict) -> None:
    """Writes the counts of one judge into a record, replacing its older ones."""
    entries = json.loads(path.read_text()) if path.exists() else []
    by_name = {entry["name"]: entry for entry in entries} | {counts["name"]: counts}
    write_rows(path, list(by_name.values()), 1)


def pip(*arguments: str | Path) -> None:
    """Runs pip of this interpreter."""
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, arguments)], check=True)


def installed(folder: Path, *requirements: str) -> None:
    """Installs packages without their dependencies into FOLDER/packages, and makes them importable."""
    packages = folder / "packages"
    versions = ((x, *x.partition("==")[::2]) for x in requirements)
    missing = [x for x, name, version in versions if not list(packages.glob(f"{name}-{version or '*'}.dist-info"))]
    if missing:
        pip("install", "--no-deps", "--upgrade", "--target", packages, *missing)
    if str(packages) not in sys.path:
        sys.path.append(str(packages))  # at the end: the interpreter's own packages come first


def normalized_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Sum of squared differences over the sum of squares of `want`."""
    got, want = got.double(), want.double()
    return float((got - want).square().sum() / want.square().sum().clamp_min(1e-300))
