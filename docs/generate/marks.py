"""Replaces generated text between <!-- begin NAME --> and <!-- end NAME --> in files that people write."""

import re
from collections.abc import Iterable


def put(text: str, name: str, lines: Iterable[str]) -> str:
    """Returns the text with other lines between the marks of that name."""
    mark = re.escape(name)
    block = re.compile(rf"(<!-- begin {mark} -->[^\n]*\n).*?(?=[^\n]*<!-- end {mark} -->)", re.DOTALL)
    new, count = block.subn(lambda match: match[1] + "".join(f"{line}\n" for line in lines), text)
    if not count:
        raise ValueError(f"the text has no marks of {name}")
    return new

