import os
import sys

import pytest
import torch

sys.path.insert(0, os.path.dirname(__file__))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """CMake looks for the mark in the text of a file, and makes a test of the cases that bear it."""
    for item in items:
        if item.get_closest_marker("long") and "pytest.mark.long" not in item.path.read_text():
            raise pytest.UsageError(f"{item.nodeid} must be marked as pytest.mark.long in its own file")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
