"""python -m isentrope COMMAND: the command line, even if the package's programs are not installed.

Commands written in Python run in this process; all others are those of the program `isentrope`.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from isentrope.commands.frame import program

_IN_PYTHON = ("calibrate", "doctor", "evaluate", "inspect", "tune")


def main(arguments: list[str]) -> int:
    """Runs the command that the first argument names, and returns its exit status."""
    name = arguments[0] if arguments else ""
    if name in _IN_PYTHON:
        return importlib.import_module(f"isentrope.commands.{name}").main(arguments[1:])
    if name == "check" and {"gpu", "--backend=gpu"} & set(arguments):
        return importlib.import_module("isentrope.commands.check").main(arguments[1:])
    try:
        in_wheel = Path(__file__).parents[1] / "isentrope.scripts" / "isentrope"
        file = str(in_wheel) if in_wheel.exists() else program("isentrope", "has the other commands")
        os.execv(file, [file, *arguments])
    except OSError as error:
        print(f"isentrope: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
