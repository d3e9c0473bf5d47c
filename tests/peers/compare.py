#!/usr/bin/env python3
"""Runs the attention tests of transformers and torch, with isentrope in place of sdpa and without.

    compare.py BUILD FOLDER                              tests in the source distribution of the installed transformers
    compare.py BUILD FOLDER --transformers CHECKOUT      the tests of its models instead
    compare.py BUILD FOLDER --pytorch CHECKOUT           also torch's test/test_transformers.py

Fails if a test passes only without the operator, or if no test called it. The tests are downloaded, run and not kept:
FOLDER may be removed.
"""

import argparse
import collections
import dataclasses
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as xml
from pathlib import Path

from case import installed, record

HERE = Path(__file__).parent
MODELS = ("llama", "mistral", "gemma2", "gpt_oss", "bert", "whisper")
# One test of torch has 3,072 shapes, which take hours: those with two sequences, three heads and at most 514 queries run.
TORCH_SHAPES = "not (batch_size_12 or q_seq_len_1030 or n_head_1)"
DIFFERS = {  # patterns of names, and why these tests may pass only without the operator
    r".*[.]test_scaled_dot_product_attention_.*_dropout_p_0_[25]_cpu": "compares random numbers of dropout with those of torch",
    r".*[.]test_(.*_output_attentions|capture_outputs_decorator|model_outputs_equivalence)": "asks for weights, which is an error here",
}
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


@dataclasses.dataclass
class Suite:
    """Tests of a library, and the options with which pytest runs them."""

    library: str
    version: str
    root: Path
    tests: list[str]
    options: list[str]


def suites(arguments, folder):
    version = importlib.metadata.version("transformers")
    options = ["-k", arguments.k or "not Integration"]
    if arguments.transformers:
        tests = [f"tests/models/{x}/test_modeling_{x}.py" for x in MODELS]
        found = [Suite("transformers", version, arguments.transformers.resolve(), tests, options)]
    else:
        found = [Suite("transformers", version, *unpacked(folder), options)]
    if arguments.pytorch:
        # torch's conftest.py and pytest.ini need an old pytest.
        options = ["-k", arguments.k or TORCH_SHAPES, "--noconftest", "-c", os.devnull]
        version = (arguments.pytorch / "version.txt").read_text().strip()
        found.append(Suite("torch", version, arguments.pytorch.resolve(), ["test/test_transformers.py"], options))
    return found


def run(suite, folder, build, in_place):
    """Returns the outcomes of the suite, with the operator in place of sdpa or without."""
    report = folder / f"{suite.library}-{'with' if in_place else 'without'}.xml"
    paths = [build / "python", HERE, folder / "packages"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "HF_HUB_OFFLINE": "1"}
    options = suite.options
    if in_place:
        environment["ISENTROPE_IN_PLACE_OF"] = suite.library
        options = ["-p", "replacement", *options]
    pytest = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", *options]
    with open(report.with_suffix(".log"), "w") as log:
        subprocess.run([*pytest, f"--junitxml={report}", *suite.tests], cwd=suite.root, env=environment, stdout=log, stderr=log)
    return outcomes(report)


def compared(suite, folder, build):
    """Runs the suite twice. Returns its counts for the record, and whether it passes."""
    without, with_operator = (run(suite, folder, build, in_place) for in_place in (False, True))

    def count(found, state):
        return sum(x == state for x, _ in found.values())

    print(f"{suite.library} {suite.version}")
    for name, found in (("without the operator", without), ("with the operator", with_operator)):
        print(f"  {name}: " + ", ".join(f"{count(found, state)} {state}" for state in ("passed", "failed", "skipped")))
    calls = [called for _, called in with_operator.values() if called]
    print(f"  the operator was called {sum(calls)} times, by {len(calls)} tests")
    lost = [x for x, (state, _) in without.items() if state == "passed" and with_operator.get(x, (None,))[0] != state]
    reasons = {x: reason for x in lost for name, reason in DIFFERS.items() if re.fullmatch(name, x)}
    failures = sorted(set(lost) - reasons.keys())
    for name in failures:
        print(f"  passes only without the operator: {name}")
    passed = count(without, "passed")
    counts = {
        "name": suite.library, "title": f"attention tests of {suite.library} {suite.version}",
        "cases": len(without), "agree": passed - len(lost), "differ": dict(collections.Counter(reasons.values())),
        "left out": {"fails or is skipped without the operator too": len(without) - passed}, "failed": len(failures),
    }  # fmt: skip
    return counts, bool(calls) and not failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--transformers", type=Path, metavar="CHECKOUT")
    parser.add_argument("--pytorch", type=Path, metavar="CHECKOUT")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the counts there")
    parser.add_argument("-k", metavar="EXPRESSION", help="which tests, as pytest has it; some shapes of torch's by default")
    arguments = parser.parse_args()
    build, folder = arguments.build.resolve(), arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    installed(folder, "parameterized", "expecttest")
    passes = True
    for suite in suites(arguments, folder):
        counts, agrees = compared(suite, folder, build)
        passes = passes and agrees
        if arguments.record:
            record(arguments.record, counts)
    return 0 if passes else 1


if __name__ == "__main__":
    sys.exit(main())
