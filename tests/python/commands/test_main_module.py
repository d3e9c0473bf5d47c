"""python -m isentrope runs every command, without installed programs."""

import subprocess
import sys

import pytest


def isentrope(*arguments):
    return subprocess.run([sys.executable, "-m", "isentrope", *arguments], capture_output=True, text=True, check=False)


OTHERS = [pytest.param(name, marks=pytest.mark.long) for name in ("inspect", "check")]


@pytest.mark.parametrize("command", ["tune", *OTHERS])
def test_commands_of_the_package_run_in_python(command):
    options = ["--backend", "gpu"] if command == "check" else []
    done = isentrope(command, *options, "--help")
    assert done.returncode == 0 and done.stdout.startswith(f"usage: isentrope {command}"), done.stderr


def test_other_commands_are_the_programs():
    done = isentrope("scale", "standard", "--dim", "64")
    assert done.returncode == 0 and "0.125" in done.stdout, done.stderr


@pytest.mark.long
def test_help_and_errors_are_those_of_the_programs():
    assert isentrope("--help").stdout == subprocess.run(["isentrope", "--help"], capture_output=True, text=True, check=True).stdout
    assert isentrope("no such command").returncode == 2
