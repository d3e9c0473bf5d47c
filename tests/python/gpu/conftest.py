import sys
import warnings
from pathlib import Path

import numpy
import pytest
import torch
from stand_in_device import CHIP

import isentrope.gpu  # noqa: F401, before any kernel is called: it decides who interprets
from isentrope.gpu import tile_table
from isentrope.gpu.interpreter import speed_up

speed_up()
sys.path.append(str(Path(__file__).parents[3]))  # bench, src.gpu and scripts


@pytest.fixture(autouse=True)
def quiet():
    """Suppresses numpy's warnings for operations that a GPU does silently: 0 / 0, and overflow of exp2."""
    torch.manual_seed(0)
    with numpy.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Returns the table of the stand-in, in an empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tile_table.forget()
    yield tile_table.user_file(CHIP.card)
    tile_table.forget()
