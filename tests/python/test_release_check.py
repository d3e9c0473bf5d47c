"""scripts/release-check: requirements for a changelog."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
changelog = runpy.run_path(str(ROOT / "scripts/release-check"))["changelog"]
RELEASED = "# Changes\n\n## [0.2.0] - 2026-12-24\n- Something.\n\n## [0.1.0] - 2026-11-24\n### Added\n- All of it.\n"


def test_a_changelog_that_is_ready():
    assert changelog("0.2.0", RELEASED) is None
    assert changelog("0.2.0", RELEASED.replace("# Changes\n", "# Changes\n\n## [Unreleased]\n\n")) is None


@pytest.mark.parametrize(
    "old, new, wanted",
    [
        ("0.2.0", "0.3.0", "no '## [0.2.0] - YEAR-MONTH-DAY'"),
        ("[0.2.0] - 2026-12-24", "[Unreleased]", "changes under [Unreleased]"),
        (" - 2026-11-24", "", "got '[0.1.0]'"),
        ("[0.1.0] - 2026-11-24", "0.1.0, 2026-11-24", "got '0.1.0, 2026-11-24'"),
        ("2026-11-24", "2027-01-01", "the newest version first"),
        ("- All of it.", "- Something.", "1 entries twice; the first is '- Something.'"),
    ],
)
def test_what_is_missing_is_named(old, new, wanted):
    assert wanted in changelog("0.2.0", RELEASED.replace(old, new))


def test_the_one_of_this_checkout_is_ready_or_unreleased():
    found = changelog("0.0.0", (ROOT / "CHANGELOG.md").read_text())
    assert "[Unreleased]" in found or "[0.0.0]" in found
