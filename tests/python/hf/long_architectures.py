"""Every architecture of the installed transformers: right, refused with a way out, or not made; as docs/models.md says."""

import json
import subprocess
import sys

import transformers
from programs import ROOT


def test_no_architecture_is_wrong_and_the_record_is_current(tmp_path):
    record = tmp_path / "models.json"
    subprocess.run([sys.executable, ROOT / "tests/python/sweep/sweep.py", record], check=True)
    verdicts = json.loads(record.read_text())[transformers.__version__]
    recorded = json.loads((ROOT / "docs/results/models.json").read_text())[transformers.__version__]
    assert {name: x["verdict"] for name, x in verdicts.items()} == {name: x["verdict"] for name, x in recorded.items()}
