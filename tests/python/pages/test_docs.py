"""Examples of the documentation run, page by page in order, and print what their comments say."""

import re
import subprocess

import pytest
import torch.nn.attention
from programs import ROOT
from test_doctor import LAST_LINE as LAST_LINE_OF_DOCTOR

PAGES = ["docs/pytorch.md", "docs/transformers.md", "docs/inspect.md", "README.md"]


@pytest.mark.parametrize("page", PAGES)
def test_examples_run_and_print_what_they_say(page, capsys):
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    assert blocks, f"{page} has no example"
    names: dict = {}
    for block in blocks:
        if "restore_flash_attention_impl" in block and not hasattr(torch.nn.attention, "restore_flash_attention_impl"):
            continue  # torch 2.10
        exec(compile(block, page, "exec"), names)
        promised = re.findall(r"^# (.*)$", block, re.MULTILINE)
        assert capsys.readouterr().out.splitlines() == promised, block


def code_of(page):
    """Lines of the fenced and indented code blocks of a page, without their indentation."""
    fenced = False
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced:
            yield line
        elif re.match(r"    [^-*\d ]", line):
            yield line[4:]


def test_code_in_pages_is_at_most_80_columns_wide():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tools").rglob("*.md")]
    assert [(page.name, line) for page in pages for line in code_of(page) if len(line) > 80] == []


PURPOSE = re.compile(r"(Check|Follow|Look up|Read|Use) |This page |To \w+ |Isentrope is ")


def test_pages_begin_with_what_they_are_for():
    pages = [page for page in (ROOT / "docs").rglob("*.md") if not re.match(r"\d{4}-", page.name)]
    begin = {page.name: page.read_text().split("\n\n", 2)[1] for page in pages}
    assert [name for name, text in begin.items() if not PURPOSE.match(text)] == []


def test_the_commands_of_the_readme_do_what_it_says():
    text = (ROOT / "README.md").read_text()
    commands = re.findall(r"^    (\S.*?)(?: +#.*)?$", text, re.MULTILINE)
    targets = [command.split()[1] for command in commands if command.startswith("make ")]
    subprocess.run(["make", "-n", *targets], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    assert "isentrope doctor" in commands and re.search(r"Its last line says `(.*?)`", text)[1] == LAST_LINE_OF_DOCTOR
