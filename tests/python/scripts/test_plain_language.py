"""tests/plain_language.py finds the sentences of comments, docstrings and pages."""

from pathlib import Path

import pytest
from programs import loaded

PYTHON = '''
x: int
"""Of an attribute."""


class Pair:
    """Pair of numbers.

    first: one
        That continues.
    """

    y: int
    """Where it lies."""
'''


@pytest.fixture
def check():
    return loaded("tests/plain_language.py")


@pytest.mark.parametrize(
    "name, text, wanted",
    [("a.md", "# Heading\nBelow it.\n\n- an item\n  that goes on\n- **What** else\n\n    code\n",
      ["Below it.", "- an item that goes on", "- What else"]),
     ("a.h", '/* Of a type. */\nint x; /* one\n * of two */\n// Third.\nputs("/* no */");\n',
      ["Of a type.", "one of two", "Third."]),
     ("a.py", PYTHON,
      ["Of an attribute.", "Pair of numbers.", "first:", "one That continues.", "Where it lies."])],
)  # fmt: skip
def test_sentences_are_found(check, name, text, wanted):
    sentences = [s for comment in check.comments(Path(name), text) for s in check.sentences(comment)]
    assert sorted(sentences) == sorted(wanted)


def test_faults(check):
    assert check.faults("- What else") and check.faults("Of a type.")
    assert not check.faults("What is a type?")
    assert check.faults("word " * 26) == ["has 26 words"] and not check.faults("word " * 25)
    assert check.faults("The rows that are not.")


def test_every_folder_with_text_is_checked(check):
    assert all((check.ROOT / name).exists() for name in check.CHECKED)
