"""The documentation site: Markdown pages of the repository, docstrings, header comments and each command's --help.

Pages stay plain Markdown that a code host shows; what the site adds to them (contents, search) is said here and in
toc.yml. `make docs` builds it, and a warning, a broken link among them, fails it.
"""

import itertools
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

project = "Isentrope"
author = "The Isentrope authors"
extensions = [
    "breathe",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_external_toc",
    "sphinxcontrib.programoutput",
]

# The source folder is the repository, so that links between pages and files work here and on a code host.
exclude_patterns = [path.name for path in ROOT.iterdir() if path.name not in {"docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"}]
exclude_patterns += ["docs/results", "docs/generate", "docs/site"]
external_toc_path = str(Path(__file__).parent / "toc.yml")
myst_heading_anchors = 3

html_theme = "furo"
html_title = "Isentrope"
html_extra_path = ["index.html"]
html_copy_source = False
html_show_copyright = False
html_show_search_summary = False  # a browser cannot fetch them from files on a disk
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
highlight_language = "text"

breathe_default_project = "isentrope"
breathe_domain_by_file_pattern = {"*/isentrope/isentrope.h": "c"}

suppress_warnings = ["duplicate_declaration.cpp", "duplicate_declaration.c"]  # a namespace is in every header

# Docstrings are plain text: backticks are code, and indented parts are lists of arguments or formulas.
default_role = "py:obj"
add_module_names = False
autodoc_member_order = "bysource"


def _plain(line):
    """Escapes text that reStructuredText would treat as markup: |x|, a*b, lambda_."""
    parts = re.split(r"(`[^`]*`)", line)
    parts[::2] = [re.sub(r"([|*\\]|(?<=\w)_(?!\w))", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def _marked_up(docstring):
    for indented, group in itertools.groupby(docstring, lambda line: line.startswith("    ")):
        block = [line[4:] if indented else line for line in group]
        if not indented:
            yield from map(_plain, block)
        elif re.match(r"\w[\w, ]*: ", block[0]):
            yield ""
            for line in block:
                named = re.match(r"(\w[\w, ]*): (.*)", line)
                yield f"- **{_plain(named[1])}**: {_plain(named[2])}" if named else f"  {_plain(line.strip())}"
            yield ""
        else:
            yield from ["", "::", "", *("    " + line for line in block), ""]


def setup(app):
    app.connect("autodoc-process-docstring", lambda *event: event[-1].__setitem__(slice(None), _marked_up(list(event[-1]))))
