"""Interface of adapters to `judges.py`, and helpers that adapters share."""

from __future__ import annotations

import dataclasses
import importlib.machinery
import importlib.util
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


def without_init(folder: Path, *names: str) -> None:
    """Makes packages importable without their __init__, which imports what the cases do not need."""
    for name in names:
        package = importlib.util.module_from_spec(importlib.machinery.ModuleSpec(name, None, is_package=True))
        package.__path__ = [str(folder / name.replace(".", "/"))]
        sys.modules.setdefault(name, package)


def tiny_llama(layers: int, attention: str = "sdpa", positions: int = 64):
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=61, hidden_size=64, intermediate_size=64, num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, max_position_embeddings=positions, pad_token_id=0,
    )  # fmt: skip
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()


def normalized_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Sum of squared differences over the sum of squares of `want`."""
    got, want = got.double(), want.double()
    return float((got - want).square().sum() / want.square().sum().clamp_min(1e-300))
