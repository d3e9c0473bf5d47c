"""Renamed modules can be imported by their old names."""

import importlib
import pickle
import subprocess
import sys

import pytest

from isentrope._moved import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_is_the_module_and_says_the_new_one(old):
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"^{old} is {MOVED[old]} now: the old name ends with version 0.3$"):
        found = importlib.import_module(old)
    assert found is importlib.import_module(MOVED[old]) and found.__spec__.name == MOVED[old]


@pytest.mark.long
def test_an_old_name_is_an_attribute_of_the_package():
    code = "from isentrope import monitor; import isentrope.calibration as c; print(monitor.Monitor.__name__, c.apply.__name__)"
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["Monitor", "apply"]


def test_what_was_pickled_under_an_old_name_is_read():
    from isentrope.hf.rope import Stretch

    pickled = pickle.dumps(Stretch("ntk", 2.0, {}), protocol=0).replace(b"isentrope.hf.rope", b"isentrope.rope")
    sys.modules.pop("isentrope.rope", None)
    with pytest.warns(DeprecationWarning):
        assert pickle.loads(pickled) == Stretch("ntk", 2.0, {})


@pytest.mark.long
def test_a_program_is_run_under_its_old_name():
    result = subprocess.run([sys.executable, "-m", "isentrope.inspect_command", "--help"], capture_output=True, text=True)
    assert result.returncode == 0 and result.stdout.startswith("usage: isentrope inspect"), result.stderr


def test_names_that_never_were_are_not_found():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("isentrope.calibrations")
