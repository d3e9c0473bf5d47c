#!/usr/bin/env python3
"""Runs the attention tests of transformers and torch, with isentrope in place of sdpa and without.

    compare.py BUILD FOLDER                              tests in the source distribution of the installed transformers
    compare.py BUILD FOLDER --transformers CHECKOUT      the tests of its models
    compare.py BUILD FOLDER --pytorch CHECKOUT           test/test_transformers.py

Fails if a test passes only without the operator, or if no test called it. The tests are downloaded, run and not kept:
FOLDER may be removed.
"""

import argparse
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as xml
from pathlib import Path

from case import record

HERE = Path(__file__).parent
MODELS = ("llama", "mistral", "gemma2", "gpt_oss", "bert", "whisper")
# Base classes of the common tests that the source distribution lacks.
MISSING = {"exporters/test_export.py": "ExportTesterMixin", "generation/test_utils.py": "GenerationTesterMixin"}


def unpacked(folder):
    """Unpacks the tests of the installed transformers from its source distribution, with the models of this folder."""
    tests = folder / "transformers" / "tests"
    if not tests.exists():
        version = importlib.metadata.version("transformers")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*pip, "--no-binary", ":all:", "-d", folder, f"transformers=={version}"], check=True)
        with tarfile.open(folder / f"transformers-{version}.tar.gz") as archive:
            archive.extractall(folder, [x for x in archive if "/tests/" in x.name], filter="data")
        (folder / f"transformers-{version}").rename(tests.parent)
    for name, mixin in MISSING.items():
        (tests / name).parent.mkdir(exist_ok=True)
        (tests / name).write_text(f"class {mixin}:\n    pass\n")
        (tests / name).with_name("__init__.py").touch()
    (tests / "__init__.py").touch()
    shutil.copy(HERE / "transformers_models.py", tests / "test_models.py")
    return tests.parent, ["tests/test_models.py"]


def outcomes(report):
    """Returns for each test whether it passed, failed or was skipped, and how often the operator was called."""
    found = {}
    for case in xml.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        state = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        calls = sum(int(x.get("value")) for x in case.iter("property") if x.get("name") == "calls")
        found[f"{case.get('classname')}.{case.get('name')}"] = state, calls
    return found


def run(root, tests, folder, build, in_place_of, choice):
    """The outcomes of tests; choice: options of pytest."""
    report = folder / f"{'with' if in_place_of else 'without'}.xml"
    paths = [build / "python", HERE, folder / "packages"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "HF_HUB_OFFLINE": "1"}
    plugin = []
    if in_place_of:
        environment["ISENTROPE_IN_PLACE_OF"] = in_place_of
        plugin = ["-p", "replacement"]
    pytest = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", *plugin, *choice]
    with open(report.with_suffix(".log"), "w") as log:
        subprocess.run([*pytest, f"--junitxml={report}", *tests], cwd=root, env=environment, stdout=log, stderr=log)
    return outcomes(report)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--transformers", type=Path, metavar="CHECKOUT")
    parser.add_argument("--pytorch", type=Path, metavar="CHECKOUT")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the counts there")
    parser.add_argument("-k", metavar="EXPRESSION", default="not Integration", help="which tests, as pytest has it")
    arguments = parser.parse_args()
    build, folder = arguments.build.resolve(), arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "packages").exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder / "packages"]
        subprocess.run([*pip, "parameterized", "expecttest"], check=True)
    if arguments.pytorch:
        root, tests = arguments.pytorch, ["test/test_transformers.py"]
    elif arguments.transformers:
        root, tests = arguments.transformers, [f"tests/models/{x}/test_modeling_{x}.py" for x in MODELS]
    else:
        root, tests = unpacked(folder)
    choice = ["-k", arguments.k]
    if arguments.pytorch:  # whose conftest.py and pytest.ini need the pytest of 2023
        choice += ["--noconftest", "-c", os.devnull]
    without = run(root, tests, folder, build, "", choice)
    within = run(root, tests, folder, build, "torch" if arguments.pytorch else "transformers", choice)

    def count(found, state):
        return sum(x == state for x, _ in found.values())

    for name, found in (("without the operator", without), ("with the operator", within)):
        print(f"{name}: " + ", ".join(f"{count(found, state)} {state}" for state in ("passed", "failed", "skipped")))
    calls = [called for _, called in within.values() if called]
    print(f"the operator was called {sum(calls)} times, by {len(calls)} tests")
    lost = [x for x, (state, _) in without.items() if state == "passed" and within.get(x, (None,))[0] != state]
    for name in sorted(lost):
        print(f"passes without the operator alone: {name}")
    if arguments.record:
        library = "torch" if arguments.pytorch else "transformers"
        passed = count(without, "passed")
        record(arguments.record, {
            "name": library, "title": f"attention tests of {library} {importlib.metadata.version(library).partition('+')[0]}",
            "cases": len(without), "agree": passed - len(lost), "differ": {}, "failed": len(lost),
            "left out": {"fails or is skipped without the operator too": len(without) - passed},
        })  # fmt: skip
    return 1 if lost or not calls else 0


if __name__ == "__main__":
    sys.exit(main())
