"""scripts/release-check: requirements for a changelog."""

import re
import runpy

import pytest
from programs import ROOT

functions = runpy.run_path(str(ROOT / "scripts/release-check"))
changelog = functions["changelog"]
RELEASED = "# Changes\n\n## [0.2.0] - 2026-12-24\n- Something.\n\n## [0.1.0] - 2026-11-24\n### Added\n- All of it.\n"


def test_a_changelog_that_is_ready():
    assert changelog("0.2.0", RELEASED) is None
    assert changelog("0.2.0", RELEASED.replace("# Changes\n", "# Changes\n\n## [Unreleased]\n\n")) is None


@pytest.mark.parametrize(
    "old, new, wanted",
    [
        ("0.2.0", "0.3.0", "no '## [0.2.0] - YEAR-MONTH-DAY'"),
        ("[0.2.0] - 2026-12-24", "[Unreleased]", "changes under [Unreleased]"),
        ("2026-12-24", "unreleased", "changes under [0.2.0] - unreleased"),
        (" - 2026-11-24", "", "got '[0.1.0]'"),
        ("[0.1.0] - 2026-11-24", "0.1.0, 2026-11-24", "got '0.1.0, 2026-11-24'"),
        ("2026-11-24", "2027-01-01", "the newest version first"),
        ("- All of it.", "- Something.", "1 entries twice; the first is '- Something.'"),
    ],
)
def test_what_is_missing_is_named(old, new, wanted):
    assert wanted in changelog("0.2.0", RELEASED.replace(old, new))


def test_the_one_of_this_checkout_is_ready_or_unreleased():
    state = changelog("0.0.0", (ROOT / "CHANGELOG.md").read_text())
    assert "under" in state or "[0.0.0]" in state


def test_examples_and_pages_ask_for_this_minor_version():
    minor = functions["version"]().rpartition(".")[0]
    files = [*ROOT.glob("examples/*/CMakeLists.txt"), *ROOT.glob("tests/packaging/*/CMakeLists.txt"), *ROOT.glob("docs/**/*.md")]
    asked = {f"{file}: {version}" for file in files for version in re.findall(r"find_package\(isentrope ([\d.]+)", file.read_text())}
    assert len(asked) >= 5 and not [line for line in asked if not line.endswith(f": {minor}")]
