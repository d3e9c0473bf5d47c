"""scripts/study: the order of a plan, resuming from records, killed workers, and the resulting page."""

import argparse
import hashlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

OPTIONS = None
LIMIT = 300  # seconds
PLAN = {
    "common": "--layers 1 --width 8 --heads 2 --batch 4 --train-length 8 --steps 10 --lengths 8,32 --evaluation-tokens 64",
    "cells": {"second": "--positions alibi", "first": "--positions rope"},
    "rules": {"pair": "standard,log_length", "three": "standard,log_length,logn(train_len=8)"},
    "rescaled": {"plain": "entropy_invariant(base=8)"},
    "order": [{"cell": "first", "rules": "pair", "rescaled": "plain", "seeds": 1},
              {"cell": "second", "rules": "pair", "rescaled": "plain", "seeds": 1},
              {"cell": "first", "rules": "pair", "rescaled": "plain", "seeds": 2},
              {"cell": "first", "rules": "three", "rescaled": "plain", "seeds": 1}],
}
LONG = " --steps 1500"  # long enough to interrupt


class Study(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        corpus = self.folder / "corpus.txt"
        corpus.write_text("".join(f"the row sees {i} keys\n" for i in range(300)))
        self.plan = {**PLAN, "common": f"{PLAN['common']} --corpus {corpus}"}
        program = self.folder / "program"  # a program that logs its arguments and runs the real one
        program.write_text(f'#!/bin/sh\necho "$@" >> {self.folder}/calls\nshift\nexec {OPTIONS.program} "$@"\n')
        program.chmod(0o755)

    def start(self, output, *more, **changes):
        (self.folder / "plan.json").write_text(json.dumps({**self.plan, **changes}))
        return subprocess.Popen(
            [sys.executable, OPTIONS.study, self.folder / "plan.json", "--program", self.folder / "program", "--output",
             self.folder / output, "--records", self.folder / "records.json", *more],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)  # fmt: skip

    def end(self, process, code=0):
        out, err = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, code, err)
        return out if code == 0 else err

    def study(self, output, *more, **changes):
        return self.end(self.start(output, *more, **changes))

    def refused(self, output, *more, code=2, **changes):
        return self.end(self.start(output, *more, **changes), code)

    def calls(self):
        return (self.folder / "calls").read_text().splitlines()

    def cells(self):
        return json.loads((self.folder / "records.json").read_text())["cells"]

    def measured(self):
        """Returns every digit of the records except times, and removes them."""
        cells = self.cells()
        (self.folder / "records.json").unlink()
        for cell in cells.values():
            for record in cell["records"]:
                self.assertGreater(record.pop("seconds_per_step"), 0)
        return cells

    def log(self, output, cell, name):
        return (self.folder / output / cell / name / "log.txt").read_text()

    def await_checkpoint(self, folder):
        for _ in range(LIMIT * 100):
            if list((self.folder / folder).glob("checkpoints/*.safetensors")):
                return
            time.sleep(0.01)
        self.fail(f"no checkpoint in {folder}")

    def test_trains_in_order_and_goes_on_from_the_records_alone(self):
        self.assertIn("0 of 7 trainings", self.study("run", "--collect"))
        self.assertIn("7 of 7 trainings", self.study("run", "--jobs", "1"))
        cells = self.cells()
        self.assertEqual(list(cells), ["second", "first"])
        self.assertEqual([cell["planned"] for cell in cells.values()], [2, 5])
        self.assertEqual([len(cell["records"]) for cell in cells.values()], [2, 5])
        self.assertEqual(["alibi" in call for call in self.calls()], [False, False, True, True, False, False, False])
        self.assertIn("step 10 of 10", self.log("run", "first", "logn-train_len=8-seed1"))

        # In another folder, as on another machine, nothing is trained and the records stay the same.
        self.study("elsewhere")
        self.assertEqual((len(self.calls()), self.cells()), (7, cells))

        (self.folder / "records.json").unlink()  # the folder alone is enough as well
        self.study("run")
        self.assertEqual((len(self.calls()), self.cells()), (7, cells))

    def long_jobs_change_no_digit(self):
        self.study("one", "--jobs", "1")
        one = self.measured()
        self.study("three", "--jobs", "3")
        self.assertEqual(self.measured(), one)

    def test_a_failure_is_named_and_the_others_go_on(self):
        rules = {"pair": "standard,entropy", "three": "standard"}
        says = self.refused("run", code=1, rules=rules).splitlines()
        self.assertEqual(len(says), 3)
        for seed, cell in ((1, "first"), (2, "first"), (1, "second")):
            line = [one for one in says if one.startswith(f"study: {cell}: entropy, seed {seed}: isentrope extrapolate: ")]
            self.assertEqual(len(line), 1, says)
            self.assertIn("a rule must be one of", line[0])
        self.assertEqual([[record["rule"] for record in cell["records"]] for cell in self.cells().values()],
                         [["standard"], ["standard", "standard"]])  # fmt: skip

    def long_records_of_other_trainings_are_refused(self):
        self.assertIn("a plan must name rules as records do, logn(train_len=8); got logn(8)",
                      self.refused("run", code=1, rules={"pair": "standard", "three": "logn(8)"}))  # fmt: skip
        self.study("run")
        first = self.cells()["first"]["records"]
        self.assertIn("study: the options of first must be those of",
                      self.refused("run", cells={"second": "--positions alibi", "first": "--positions none"}))  # fmt: skip
        one = {"cells": {"first": "--positions rope"}, "order": PLAN["order"][:1]}
        self.assertIn("must hold cells of the plan alone; got second", self.refused("run", **one))
        self.assertIn('HOST:PORT is needed; got "8786"', self.refused("run", "--listen", "8786"))
        (self.folder / "corpus.txt").write_text("".join(f"the row sees {i} keys\n" for i in range(400)))
        more = [{"cell": "first", "rules": "pair", "rescaled": "plain", "seeds": 3}]
        self.assertIn("corpus must be the same throughout a cell; got ", self.refused("run", code=1, order=more))
        self.assertEqual(self.cells()["first"]["records"], first)

    def long_goes_on_after_ctrl_c_with_the_same_digits(self):
        long = {"common": self.plan["common"] + LONG, "order": [{**PLAN["order"][0], "seeds": 2}]}
        first = self.start("run", "--jobs", "2", **long)
        self.await_checkpoint("run/first/standard-seed1")
        os.killpg(first.pid, signal.SIGINT)
        self.end(first, 130)
        self.assertIn("interrupted and saved", self.log("run", "first", "standard-seed1"))
        self.assertIn("4 of 4 trainings", self.study("run", "--jobs", "2", **long))
        self.assertIn("going on after step", self.log("run", "first", "standard-seed1"))
        interrupted = self.measured()
        self.study("at-one-go", "--jobs", "1", **long)
        self.assertEqual(self.measured(), interrupted)

    @unittest.skipUnless(importlib.util.find_spec("distributed"), "the package distributed is not there")
    def long_what_a_killed_worker_trained_is_trained_by_another(self):
        long = {"common": self.plan["common"] + LONG}
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{found.getsockname()[1]}"
        study = self.start("run", "--listen", address, **long)
        workers = [subprocess.Popen([sys.executable, "-m", "dask", "worker", address, "--nthreads", "1", "--no-nanny",
                                     "--local-directory", self.folder, "--no-dashboard"], stderr=subprocess.DEVNULL)
                   for _ in range(2)]  # fmt: skip
        self.addCleanup(lambda: [worker.kill() for worker in workers])
        self.await_checkpoint("run/first/standard-seed1")
        os.kill(self.worker_of("run/first/standard-seed1", workers), signal.SIGKILL)
        self.assertIn("7 of 7 trainings", self.end(study))
        for worker in workers:
            worker.wait(LIMIT)  # they leave when the study ends
        self.assertIn("going on after step", self.log("run", "first", "standard-seed1"))
        self.assertEqual(len(self.calls()), 8)
        distributed = self.measured()
        self.study("alone", **long)
        self.assertEqual(self.measured(), distributed)

    def worker_of(self, output, workers):
        """Returns the worker whose child trains there."""
        for worker in workers:
            children = Path(f"/proc/{worker.pid}/task").glob("*/children")
            for child in " ".join(path.read_text() for path in children).split():
                if str(self.folder / output) in Path(f"/proc/{child}/cmdline").read_text():
                    return worker.pid
        self.fail(f"nobody trains in {output}")

    def long_the_page_and_the_verdicts_are_those_of_the_records(self):
        self.study("run")
        out = subprocess.run([OPTIONS.isentrope, "report", self.folder / "records.json"], capture_output=True, text=True, check=True)
        self.assertIn("7 of 7 trainings are done.", out.stdout)  # two seeds decide nothing
        self.assertIn("first: log_length helps nowhere, hurts nowhere, undecided at 8 (", out.stdout)
        self.assertIn("second: entropy_invariant(base=8) on the model of standard helps nowhere", out.stdout)
        page = (self.folder / "report.html").read_text()
        self.assertIn("7 of 7 trainings are done.", page)
        # The curves of both cells, with their rules marked.
        curves = page.split("Accuracy against a constant gain")[1:]
        marked = ["<code>entropy_<wbr>invariant<wbr>(base=8)</code>" in curve.split("</figure>")[0] for curve in curves]
        self.assertEqual(marked.count(True), 2, marked)

    def test_an_experiment_is_of_its_text_and_judged_when_it_is_complete(self):
        corpus = self.folder / "corpus.txt"
        contrast = {"hypothesis": "gain", "cell": "first", "rule": "log_length", "kind": "trained",
                    "against": {"rule": "standard"}}
        primary = {"metric": "accuracy", "lengths": [32], "contrasts": [contrast]}
        plan = {"experiment": {"question": "Does it?", "primary": primary},
                "texts": {str(corpus): hashlib.sha256(corpus.read_bytes()).hexdigest()},
                "order": [{"cell": "first", "rules": "pair", "rescaled": "plain", "seeds": 3}]}
        report = [OPTIONS.isentrope, "report", self.folder / "records.json"]

        def judged():
            return subprocess.run(report, capture_output=True, text=True, check=True).stdout

        self.study("run", "--collect", **plan)
        self.assertIn("0 of 6 trainings are done: not judged yet.", judged())
        self.study("run", **plan)
        self.assertIn("6 of 6 trainings are done, and judged as the experiment declared", judged())
        self.assertRegex(judged(), r"gain: log_length in first over standard in first at 32: .* \(p .*, adjusted .*\)\.")
        corpus.write_text("another text\n" * 100)
        self.assertIn("must have the SHA-256 that the plan names", self.refused("other", **plan))

    def test_damaged_records_are_refused_in_one_line(self):
        (self.folder / "damaged.json").write_text('{"kind": "study", "cells": {"a": {"options": 1}}}')
        out = subprocess.run([OPTIONS.isentrope, "report", self.folder / "damaged.json"], capture_output=True, text=True)
        self.assertEqual((out.returncode, out.stderr.count("\n")), (2, 1), out.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("study")
    parser.add_argument("program")
    parser.add_argument("isentrope")
    parser.add_argument("--long", action="store_true", help="the cases named long_*, instead of the others")
    OPTIONS = parser.parse_args()
    loader = unittest.TestLoader()
    loader.testMethodPrefix = "long" if OPTIONS.long else "test"
    unittest.main(argv=sys.argv[:1], testLoader=loader)
