"""Replaces generated text between <!-- begin NAME --> and <!-- end NAME --> in files that people write."""

import re
import sys
from collections.abc import Iterable
from pathlib import Path


def put(text: str, name: str, lines: Iterable[str]) -> str:
    """Returns the text with other lines between the marks of that name."""
    mark = re.escape(name)
    block = re.compile(rf"(<!-- begin {mark} -->[^\n]*\n).*?(?=[^\n]*<!-- end {mark} -->)", re.DOTALL)
    new, count = block.subn(lambda match: match[1] + "".join(f"{line}\n" for line in lines), text)
    if not count:
        raise ValueError(f"the text has no marks of {name}")
    return new


def main(texts: dict[Path, str]) -> int:
    """Writes the files; with --check, lists those out of date instead. Returns their number."""
    stale = {path: text for path, text in texts.items() if path.read_text() != text}
    for path, text in stale.items():
        if "--check" in sys.argv:
            print(f"not current, build the target docs: {path}")
        else:
            path.write_text(text)
    return len(stale) if "--check" in sys.argv else 0
