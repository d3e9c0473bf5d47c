"""scripts/study: the order of a plan, going on from records alone, and the page of what was found."""

import argparse
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

OPTIONS = None
PLAN = {
    "common": "--layers 1 --width 8 --heads 2 --batch 4 --train-length 8 --steps 10 --lengths 8,32 --evaluation-tokens 64",
    "cells": {"second": "--positions alibi", "first": "--positions rope"},
    "rules": {"pair": "standard,log_length", "three": "standard,log_length,logn(8)"},
    "rescaled": {"plain": "entropy_invariant(base=8)"},
    "order": [{"cell": "first", "rules": "pair", "rescaled": "plain", "seeds": 1},
              {"cell": "second", "rules": "pair", "rescaled": "plain", "seeds": 1},
              {"cell": "first", "rules": "pair", "rescaled": "plain", "seeds": 2},
              {"cell": "first", "rules": "three", "rescaled": "plain", "seeds": 1}],
}


class Study(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        corpus = self.folder / "corpus.txt"
        corpus.write_text("".join(f"the row sees {i} keys\n" for i in range(300)))
        plan = {**PLAN, "common": f"{PLAN['common']} --corpus {corpus}"}
        (self.folder / "plan.json").write_text(json.dumps(plan))
        # The program behind the front door's word, and a log of what it was asked for.
        program = self.folder / "program"
        program.write_text(f'#!/bin/sh\necho "$@" >> {self.folder}/calls\nshift\nexec {OPTIONS.program} "$@"\n')
        program.chmod(0o755)

    def study(self, output, *more):
        out = subprocess.run(
            [sys.executable, OPTIONS.study, self.folder / "plan.json", "--program", self.folder / "program", "--output",
             self.folder / output, "--records", self.folder / "records.json", *more], capture_output=True, text=True)
        self.assertEqual(out.returncode, 0, out.stderr)
        return out

    def cells(self):
        return json.loads((self.folder / "records.json").read_text())["cells"]

    def test_trains_in_order_and_goes_on_from_the_records_alone(self):
        empty = self.study("run", "--collect")
        self.assertIn("0 of 7 trainings", empty.stdout)
        first = self.study("run")
        self.assertIn("7 of 7 trainings", first.stdout)
        cells = self.cells()
        self.assertEqual(list(cells), ["second", "first"])
        self.assertEqual([cell["planned"] for cell in cells.values()], [2, 5])
        self.assertEqual([len(cell["records"]) for cell in cells.values()], [2, 5])
        calls = (self.folder / "calls").read_text().splitlines()
        self.assertEqual(["alibi" in call for call in calls], [False, True, False, False])
        self.assertEqual(first.stderr.count("step 10 of 10"), 7)

        # Another folder, as on another machine: nothing is trained, and the records stay as they were.
        second = self.study("elsewhere")
        self.assertEqual(second.stderr.count("step 10 of 10"), 0)
        self.assertEqual(self.cells(), cells)

    def test_the_page_and_the_verdicts_are_those_of_the_records(self):
        self.study("run")
        out = subprocess.run([OPTIONS.report, self.folder / "records.json"], capture_output=True, text=True, check=True)
        self.assertIn("first: log_length helps ", out.stdout)
        self.assertIn("second: entropy_invariant(base=8) on the model of standard helps nowhere", out.stdout)
        page = (self.folder / "report.html").read_text()
        self.assertIn("7 of 7 trainings are done.", page)
        # The curves of both cells, each with its rules marked.
        curves = page.split("Accuracy against a constant gain")[1:]
        marked = ["<code>entropy_<wbr>invariant<wbr>(base=8)</code>" in curve.split("</figure>")[0] for curve in curves]
        self.assertEqual(marked.count(True), 2, marked)

    def test_damaged_records_are_refused_in_one_line(self):
        (self.folder / "damaged.json").write_text('{"kind": "study", "cells": {"a": {"options": 1}}}')
        out = subprocess.run([OPTIONS.report, self.folder / "damaged.json"], capture_output=True, text=True)
        self.assertEqual((out.returncode, out.stderr.count("\n")), (2, 1), out.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("study")
    parser.add_argument("program")
    parser.add_argument("report")
    OPTIONS = parser.parse_args()
    unittest.main(argv=sys.argv[:1])
