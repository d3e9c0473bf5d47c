"""The code of the page about JAX runs and prints what the page says."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs/jax.md"


def test_the_page_prints_what_it_says(capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    expected = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("# ")]
    names = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert capsys.readouterr().out.splitlines() == expected and len(expected) == 2
    assert all(g.shape == x.shape for g, x in zip(names["gradients"], (names["q"], names["k"], names["v"]), strict=True))
