"""Relative links of pages lead to existing files and headings; pages named in code exist."""

import re

import pytest
from programs import ROOT

PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
FOLDERS = ["bench", "bindings", "include", "python", "src", "tests", "tools"]
CODE = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".cc", ".h", ".txt"}]

FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")


def anchors(page):
    """Returns the anchors of headings, as code hosts generate them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for path, anchor in LINK.findall(FENCED.sub("", page.read_text())):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"there is no {path}"
        if anchor:
            assert anchor in anchors(target), f"{path} has no heading #{anchor}"


def test_code_names_pages_that_exist():
    for file in CODE:
        for page in re.findall(r"\bdocs/[\w/.-]+\.(?:md|svg|json)\b", file.read_text()):
            assert (ROOT / page).exists(), f"{file.relative_to(ROOT)} names {page}"
        for decision in re.findall(r"\bdocs/adr/\d{4}\b", file.read_text()):
            assert list(ROOT.glob(decision + "-*.md")), f"{file.relative_to(ROOT)} names {decision}"
