#!/usr/bin/env python3
"""Checks comments, docstrings and pages: sentences open plainly, use the field's words and are short.

    tests/plain_language.py [PATH...]     # PATH: pathspecs of git; by default all of CHECKED. Exit status 1 for a fault

Comments are found by their markers, in C++, Python, CMake and shell alike.
"""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Paths of git whose text is checked, and the sentence openings and words that are refused there.
CHECKED = [
    *("CHANGELOG.md", "CMakeLists.txt", "CONTRIBUTING.md", "Makefile", "README.md"),
    *("bench", "bindings", "cmake", "docs", "examples", "include", "python", "scripts", "src", "tests", "tools"),
]
OPENINGS = re.compile(r"\W*(?:Of|What|Where|Those|That which)\b(?![^.?!]*\?)")
WORDS = re.compile(r"\b(?:no numbers?\b|numbers? that (?:is|are) none\b|that (?:there )?are (?:not|none)(?=[.,;:)]|$))")
LONGEST = 25  # words of a sentence; names count as words
ITEM = r"(?:[-*]|\d+\.) "


def comments(path: Path, text: str) -> list[str]:
    """Returns the texts of comment blocks, docstrings or Markdown paragraphs."""
    if path.suffix == ".md":
        text = re.sub(r"(?ms)^(```|~~~).*?^\1|<!--.*?-->|^#[^\n]*$|^[|<][^\n]*$", "\n\n", text)
        text = re.sub(r"\*\*|!\[[^]]*\]\([^)]*\)|\]\([^)]*\)", "", text)
        return [p for p in re.split(rf"\n\s*\n|\n(?={ITEM})", text) if not re.match(r"\n* {4}", p)]
    if path.suffix in {".h", ".cc", ".c"}:
        found = [re.sub(r"(?m)^ *\* ?", "", block) for block in re.findall(r"(?s)(?<![\"\w])/\* (.*?)\*/", text)]
        return found + marked("//", text)
    if path.suffix not in {".py", ".cmake", ".txt", ""}:
        return []
    is_python = path.suffix == ".py" or re.match("#!.*python", text)
    return marked("#", text) + (docstrings(ast.parse(text)) if is_python else [])


def marked(mark: str, text: str) -> list[str]:
    """Returns the comments that begin with a mark on each line."""
    blocks = re.findall(rf"(?m)(?:^ *{mark}(?!!|include)(?: .*)?$\n?)+|(?<=  ){mark} .*$", text)
    return [re.sub(rf"(?m)^ *{mark} ?", "", block) for block in blocks]


def docstrings(tree: ast.Module) -> list[str]:
    """Returns the docstrings of modules, classes, functions and attributes: strings that are statements."""
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    values = [node.value for body in bodies for node in body if isinstance(node, ast.Expr)]
    return [inspect.cleandoc(v.value) for v in values if isinstance(v, ast.Constant) and isinstance(v.value, str)]


def sentences(comment: str) -> list[str]:
    """Returns the sentences of a comment, without its indented formulas and tables; indented lines continue an item."""
    prose = re.sub(rf"(?m)^(?:{ITEM}|[\w, ]+: ).*(?:\n +(?!{ITEM})\S.*)+", lambda item: " ".join(item[0].split()), comment)
    prose = re.sub(r"(?m)^ {2,}.*$", "\n", prose)
    return [" ".join(s.split()) for s in re.split(rf"(?<=[.:;?!])\s+|\n\s*\n|\n(?={ITEM})", prose) if s.strip()]


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
