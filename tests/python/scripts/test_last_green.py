"""Tests of scripts/last-green: what a target's record says after a pass, after code changes, and with changed files."""

import json
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "scripts/last-green"
RECIPES = "fuzz:\n\t@true\n\t@scripts/last-green $@\n\nclean:\n\t@true\n\nlint:\n\t@true; \\\n\t  scripts/last-green $@\n"


def test_a_pass_stands_with_its_commit_until_code_changes(tmp_path):
    def run(*words, check=True):
        return subprocess.run(words, cwd=tmp_path, check=check, capture_output=True, text=True)

    def commit(name, text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        run("git", "add", ".")
        run("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", name)

    def rows():
        return {row["target"]: row for row in json.loads(run(SCRIPT, "--json").stdout)}

    run("git", "init", "-q")
    commit("Makefile", RECIPES)
    commit("docs/results/other.txt", "{}")
    assert rows() == {"fuzz": {"target": "fuzz"}, "lint": {"target": "lint"}}
    run(SCRIPT, "fuzz")
    assert rows()["fuzz"]["commits since"] == 0
    assert rows()["fuzz"]["commit"] == run("git", "rev-parse", "--short=10", "HEAD").stdout.strip()
    commit("docs/page.txt", "a page")
    assert rows()["fuzz"]["commits since"] == 0
    commit("code.cc", "int a;")
    assert rows()["fuzz"]["commits since"] == 1
    assert run(SCRIPT).stdout.splitlines()[2].split() == ["lint", *["never"] * 4]
    (tmp_path / "code.cc").write_text("int b;")
    refused = run(SCRIPT, "lint", check=False)
    assert refused.returncode == 1 and "code.cc" in refused.stderr and "commit" not in rows()["lint"]
