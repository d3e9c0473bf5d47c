"""The examples of the documentation: each page's run in order, and print what the comments behind them say."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["docs/pytorch.md", "docs/transformers.md", "docs/inspect.md", "README.md"]


@pytest.mark.parametrize("page", PAGES)
def test_examples_run_and_print_what_they_say(page, capsys):
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    assert blocks, f"{page} has no example"
    names: dict = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
        said = re.findall(r"^# (.*)$", block, re.MULTILINE)
        assert capsys.readouterr().out.splitlines() == said, block
