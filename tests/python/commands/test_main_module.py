"""python -m isentrope runs every command, without installed programs."""

import subprocess
import sys

import pytest

from isentrope.__main__ import main


def isentrope(*arguments):
    return subprocess.run([sys.executable, "-m", "isentrope", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [["tune"], ["inspect"], ["check", "--backend", "gpu"]], ids=" ".join)
def test_commands_of_the_package_run_in_python(arguments, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([*arguments, "--help"])
    assert capsys.readouterr().out.startswith(f"usage: isentrope {arguments[0]}")


def test_other_commands_are_the_programs():
    done = isentrope("scale", "standard", "--dim", "64")
    assert done.returncode == 0 and "0.125" in done.stdout, done.stderr


@pytest.mark.long
def test_help_and_errors_are_those_of_the_programs():
    assert isentrope("--help").stdout == subprocess.run(["isentrope", "--help"], capture_output=True, text=True, check=True).stdout
    assert isentrope("no such command").returncode == 2
