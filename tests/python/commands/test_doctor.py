"""isentrope doctor names what is installed, and fails if the check fails."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import isentrope
from isentrope.commands import doctor

LAST_LINE = "each within its error budget"


def test_it_names_versions_devices_and_a_check(capsys):
    assert doctor.main(["--seconds", "1"]) == 0
    out = capsys.readouterr().out
    for line in ("versions    Python 3.", "processor ", "cpu         isentrope's kernels for ", "bf16        products by ", "cuda", "check  "):
        assert line in out
    assert LAST_LINE in out.splitlines()[-1]


@pytest.mark.long
def test_it_runs_as_a_subcommand():
    done = subprocess.run(["isentrope", "doctor", "--seconds", "1"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_without_numpy_nothing_of_torchs_comes_first(tmp_path):
    (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError(\"No module named 'numpy'\", name='numpy')")
    code = "from isentrope.commands import doctor; print(doctor._versions())"
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 0 and done.stderr == "" and done.stdout.startswith("Python 3.")


def test_a_check_that_fails_is_its_exit_status(capsys, monkeypatch):
    check = {"problems": 100, "targets": {"AVX2": 3.0, "SSE4": 0.2}, "outcomes": {"PASSED": 199, "FAILED": 1}}
    monkeypatch.setattr(doctor, "_check", lambda seconds: check)
    assert doctor.main([]) == 1
    assert "1 of them outside their error budget (at most 3.00 of it)" in capsys.readouterr().out


def test_what_it_needs_is_found_next_to_it_or_named(capsys, monkeypatch, tmp_path):
    (tmp_path / "made-up").touch(0o755)
    monkeypatch.setattr("sys.argv", [str(tmp_path / "made-up")])
    assert doctor.program("made-up", "checks") == str(tmp_path / "made-up")
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert doctor.main([]) == 2
    assert "must be next to this command or on PATH" in capsys.readouterr().err
    assert doctor.main(["--seconds", "0"]) == 2


def test_where_the_backend_for_llama_cpp_is(monkeypatch, tmp_path):
    monkeypatch.delenv("GGML_BACKEND_PATH", raising=False)
    program = tmp_path / "bin" / "isentrope"
    monkeypatch.setattr(doctor, "program", lambda *_: str(program))
    library = tmp_path / "lib" / "libggml-isentrope.so"
    assert doctor._ggml_backend().startswith(f"none: no {library}, which ")
    library.parent.mkdir()
    shutil.copy(next(Path(isentrope.__file__).parent.glob("lib*.so")), library)
    assert doctor._ggml_backend() == f"{library}; llama.cpp loads it if GGML_BACKEND_PATH names it"
    monkeypatch.setenv("GGML_BACKEND_PATH", str(library))
    assert doctor._ggml_backend() == f"{library}, by GGML_BACKEND_PATH"
    for bytes_left in (library.stat().st_size - 1, 10):
        os.truncate(library, bytes_left)
        assert doctor._ggml_backend() == f"none: {library} is not a whole library; build it again"
    monkeypatch.setenv("GGML_BACKEND_PATH", "no.so")
    assert doctor._ggml_backend().startswith("none: no no.so, which ")


@pytest.mark.parametrize("built", [True, False])
def test_why_no_gpu_computes_is_said(monkeypatch, built):
    monkeypatch.setattr(doctor.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(doctor.torch.backends.cuda, "is_built", lambda: built)
    assert doctor._devices()["cuda"] == ("none: torch sees no such device" if built else "none: this torch was built without it")
