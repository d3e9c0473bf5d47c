#!/usr/bin/env python3
"""A header as Doxygen reads it: our comments are plain, and this makes those of declarations Doxygen's.

    docs/site/header_comments.py include/isentrope/mask.h
"""

import re
import sys
from pathlib import Path

# A comment line in C++ or C, and a line with a trailing comment.
COMMENT = re.compile(r"^(?P<indent>\s*)(?://|/\*| \*(?=/|\s|$)) ?(?P<text>.*?)\s*(?:\*?/)?$")
TRAILING = re.compile(r"^(?P<code>.*[^\s:/])\s+(?://|/\*) (?P<text>.*?)(?: \*/)?$")


def escaped(text):
    return re.sub(r"([<>@\\#&])", r"\\\1", text)


def text_for_doxygen(comment):
    """Converts a comment for Doxygen; indented formulas and tables stay verbatim."""
    indented = False
    for line in [*comment, "."]:
        if line.strip() and line.startswith("  ") != indented:
            indented = not indented
            yield r"\verbatim" if indented else r"\endverbatim"
        yield line if indented else escaped(line)


def lines_of(header):
    comment: list[str] = []
    code, first = "", True
    for line in header:
        whole = COMMENT.match(line)
        if whole and " ///< " in code and len(whole["indent"]) > 8:
            code += f" {escaped(whole['text'])}"
            continue
        yield code
        code = ""
        if whole:
            if not whole["text"].startswith("---"):
                comment.append(whole["text"])
            continue
        if any(comment):
            yield "/**" + (r" \file" if first else "")
            yield from list(text_for_doxygen(comment))[:-1]
            yield "*/"
            first = False
        comment = []
        trailing = TRAILING.match(line)
        code = f"{trailing['code']} ///< {escaped(trailing['text'])}" if trailing else line
    yield code


if __name__ == "__main__":
    print("\n".join(lines_of(Path(sys.argv[1]).read_text().splitlines())))
