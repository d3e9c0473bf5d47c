#!/usr/bin/env python3
"""Checks comments, docstrings and pages: sentences open plainly, use the field's words and are short.

    tests/plain_language.py [PATH...]     # PATH: pathspecs of git; by default all of CHECKED. Exit status 1 for a fault

Comments are found by their markers, in C++, Python, CMake and shell alike.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Paths of git whose text is checked, with exceptions, and the sentence openings and words that are refused there.
CHECKED = [
    *("CMakeLists.txt", "CONTRIBUTING.md", "Makefile", "README.md"),
    *("bench", "bindings", "cmake", "docs", "examples", "include", "python", "scripts", "src", "tests"),
    *("tools"),
]
OPENINGS = re.compile(r"(?:Of|What|Where|Those|That which)\b(?![^.?!]*\?)")
WORDS = re.compile(r"\b(?:no numbers?\b|numbers? that (?:is|are) none\b|that (?:there )?are (?:not|none)(?=[.,;:)]|$))")
LONGEST = 30  # words of a sentence; 25 is the aim, and names count as words


def comments(path: Path, text: str) -> list[str]:
    """Returns the texts of comment blocks, docstrings or Markdown paragraphs."""
    if path.suffix == ".md":
        text = re.sub(r"(?ms)^(```|~~~).*?^\1|<!--.*?-->", "\n\n", text)
        text = re.sub(r"!\[[^]]*\]\([^)]*\)|\]\([^)]*\)", "", text)
        return [p for p in re.split(r"\n\s*\n|\n(?=[-*] |\d\. )", text) if not re.match(r"\s*[#|<]| {4}", p)]
    mark = "//" if path.suffix in {".h", ".cc", ".c"} else "#"
    if mark == "#" and path.suffix not in {".py", ".cmake", ".txt", ""}:
        return []
    blocks = re.findall(rf"(?m)(?:^ *{mark}(?!!|include)(?: .*)?$\n?)+|(?<=  ){mark} .*$", text)
    found = [re.sub(rf"(?m)^ *{mark} ?", "", block) for block in blocks]
    if path.suffix == ".py" or re.match("#!.*python", text):
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
        found += filter(None, map(ast.get_docstring, nodes))
    return found


def sentences(comment: str) -> list[str]:
    """Returns the sentences of a comment, without its indented formulas, tables and lists."""
    prose = re.sub(r"(?m)^ {2,}.*$", "\n", comment)
    return [" ".join(s.split()) for s in re.split(r"(?<=[.:;?!])\s+|\n\s*\n|\n(?=[-*] )", prose) if s.strip()]


def faults(sentence: str) -> list[str]:
    """Returns what is wrong with a sentence."""
    found = [f'begins with "{match[0]}"' for match in [OPENINGS.match(sentence)] if match]
    found += [f'says "{match[0]}"' for match in [WORDS.search(sentence)] if match]
    words = len(re.findall(r"[A-Za-z]{2,}", sentence))
    return found + ([f"has {words} words"] if words > LONGEST else [])


def main() -> int:
    folders = sys.argv[1:] or CHECKED
    names = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    count = 0
    for name in names.split("\n"):
        path = ROOT / name
        if not path.is_file() or path.suffix in {".json", ".svg", ".txt"} and path.name != "CMakeLists.txt":
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for sentence in (s for comment in comments(path, text) for s in sentences(comment)):
            for fault in faults(sentence):
                print(f"{name}: {fault}: {sentence[:100]}")
                count += 1
    return count > 0


if __name__ == "__main__":
    sys.exit(main())
