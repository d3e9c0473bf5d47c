"""Records are written with one row a line, and read back as they were."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "scripts"))
from json_rows import json_rows, write_rows

RECORD = {"seed": 3, "empty": {}, "counts": [1, 2], "rows": [{"a": 1, "b": {"c": [0.5]}}, {"a": None, "b": {}}]}


def test_a_row_is_a_line():
    assert json_rows(RECORD, 2).split("\n") == [
        "{", ' "seed": 3,', ' "empty": {},', ' "counts": [1, 2],', ' "rows": [', '  {"a": 1, "b": {"c": [0.5]}},', '  {"a": null, "b": {}}',
        " ]", "}",
    ]  # fmt: skip


@pytest.mark.parametrize("depth", range(6))
def test_what_is_written_is_read_back(depth, tmp_path):
    write_rows(tmp_path / "record.json", RECORD, depth)
    assert json.loads((tmp_path / "record.json").read_text()) == RECORD and len(list(tmp_path.iterdir())) == 1


def test_records_in_the_repository_have_no_more_lines_than_rows():
    for file in (Path(__file__).parents[3] / "docs/results").glob("*.json"):
        assert file.read_text().count("\n") <= 2000, f"{file}: write it with json_rows()"
