"""What the commands of the package share: reading a model and text, progress, and how they end."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def count(text: str) -> int:
    """An argument that is a whole number of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; got {value}")
    return value


def check_outputs(command: str, paths: list[Path | None]) -> None:
    """Before the model runs: what cannot be written later is an error now."""
    for path in paths:
        if path is None or str(path) == "-":
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() or not os.access(path.parent, os.W_OK):
            raise ValueError(
                f"[{command}] {path} must be a file that can be written; got a folder, or no right to write"
            )


def write_report(result: dict[str, Any], output: Path) -> None:
    """The page is made by `isentrope report`, which lies beside this command."""
    program = Path(sysconfig.get_path("scripts")) / "isentrope-report"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "result.json"
        source.write_text(json.dumps(result))
        command = [str(program) if program.exists() else "isentrope-report", str(source), "--output", str(output)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def progress_of(command: str) -> Callable[[str, int, int], None]:
    """A line on standard error for each step, so that a log stays readable."""

    def show(what: str, done: int, all_: int) -> None:
        print(f"[{command}] {what}: {done} of {all_}", file=sys.stderr, flush=True)

    return show


def run(command: str, body: Callable[[], None]) -> int:
    """Exits 0, or 2 with one line when an argument does not fit; 130 after Ctrl-C."""
    try:
        body()
    except (ImportError, OSError, ValueError, subprocess.CalledProcessError) as error:
        print(f"isentrope {command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"isentrope {command}: interrupted; what was finished is kept where --resume was given", file=sys.stderr)
        return 130
    return 0
