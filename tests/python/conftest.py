import hashlib
import os
import sys
import tempfile

# Before torch is imported: threads that wait sleep, and do not spin while tests share the processor.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest
import torch

sys.path.insert(0, os.path.dirname(__file__))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Requires the mark in the text of a file, where CMake looks for it to define the long test."""
    for item in items:
        if item.get_closest_marker("long") and "pytest.mark.long" not in item.path.read_text():
            raise pytest.UsageError(f"{item.nodeid} must be marked as pytest.mark.long in its own file")


@pytest.fixture(autouse=True, scope="session")
def what_is_compiled_is_of_these_operators():
    """Gives Inductor a cache folder for these schemas, because it identifies operators by their names alone."""
    from isentrope._core.library import OPS

    packets = (OPS.attention, OPS.attention_backward, OPS.decode, OPS.row_lengths)
    schemas = "\n".join(str(getattr(packet, name)._schema) for packet in packets for name in packet.overloads())
    key = hashlib.sha256(schemas.encode()).hexdigest()[:12]
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{tempfile.gettempdir()}/isentrope-inductor-{key}"


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """Returns a folder with a tiny model and a text for each shortest run of a command."""
    import tiny_model

    return tiny_model.save(tiny_model.model(), tmp_path_factory.mktemp("made"), words=2600)
