"""isentrope extrapolate as torchrun's ranks: trainings dealt out, trainings of many ranks, ranks that are killed."""

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

PROGRAM = [sys.argv[1], "extrapolate"]
OPTIONS = ["--layers", "1", "--width", "16", "--heads", "2", "--batch", "5", "--train-length", "8", "--lengths", "8,32",
           "--evaluation-tokens", "64", "--threads", "1"]  # fmt: skip
FOUR = ["--rules", "standard,log_length", "--seeds", "2"]
ONE = ["--rules", "standard", "--dropout", "0.1"]
LIMIT = 120  # seconds


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def tensors(path):
    """The data of the file: its header tells how long its steps took."""
    content = path.read_bytes()
    return content[8 + int.from_bytes(content[:8], "little"):]


class Ranks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.corpus = self.folder / "corpus.txt"
        self.corpus.write_text("".join(f"the row sees {i} keys\n" for i in range(300)))
        self.environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo"}

    def command(self, output, *more):
        return [*PROGRAM, *OPTIONS, "--corpus", str(self.corpus), "--output", str(output), *more]

    def start(self, command, **options):
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                **({"env": self.environment, "cwd": self.folder} | options))  # fmt: skip

    def end(self, process, code=0):
        out, err = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, code, err)
        return out, err

    def alone(self, output, *more):
        return self.end(self.start(self.command(output, *more)))[0]

    def torchrun(self, ranks, output, *more, launcher=()):
        return self.start([sys.executable, "-m", "torch.distributed.run", "--no-python", "--standalone", *launcher,
                           "--nproc-per-node", str(ranks), *self.command(output, *more)])  # fmt: skip

    def by_hand(self, ranks, output, *more, folders=None, second=()):
        """Without torchrun, as other launchers start ranks: the first of them keeps the store."""
        shared = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        return [self.start(self.command(output, *more, *(second if rank == 1 else ())), cwd=(folders or [self.folder] * ranks)[rank],
                           env=self.environment | {key: str(x) for key, x in (shared | {"RANK": rank}).items()})
                for rank in range(ranks)]  # fmt: skip

    def assert_same_bits(self, output, other):
        """Every weight, moment and number, but for times."""
        models = [sorted((self.folder / name / "models").glob("*.safetensors")) for name in (output, other)]
        self.assertGreater(len(models[0]), 0)
        self.assertEqual([path.name for path in models[0]], [path.name for path in models[1]])
        for mine, theirs in zip(*models):
            self.assertEqual(tensors(mine), tensors(theirs), mine.name)
        results = [self.result(name) for name in (output, other)]
        for result in results:
            for row in result["rules"]:
                row.pop("seconds_per_step", None)
        for member in ("rules", "leads", "gains", "evaluation"):
            self.assertEqual(results[0][member], results[1][member], member)

    def result(self, output):
        return json.loads((self.folder / output / "result.json").read_text())

    def kill_second_rank(self, torchrun, checkpoint):
        while torchrun.poll() is None and not (self.folder / checkpoint).exists():
            time.sleep(0.01)
        ranks = subprocess.run(["ps", "-o", "pid=", "--ppid", str(torchrun.pid)], capture_output=True, text=True)
        second = [int(pid) for pid in ranks.stdout.split()
                  if "RANK=1" in Path(f"/proc/{pid}/environ").read_text().split("\0")]  # fmt: skip
        self.assertEqual(len(second), 1)
        os.kill(second[0], signal.SIGKILL)

    def test_any_number_of_ranks_gives_the_digits_of_one_process(self):
        said = self.alone("alone", *FOUR, "--steps", "20")
        out, err = self.end(self.torchrun(2, "on-2-ranks", *FOUR, "--steps", "20"))
        self.assertEqual(out.replace("on-2-ranks", "alone"), said)  # one result
        self.assertEqual(err.count("step 20 of 20"), 4)  # one display of all
        self.assert_same_bits("on-2-ranks", "alone")
        self.assertEqual((self.result("on-2-ranks")["machine"]["ranks"], self.result("alone")["machine"]["ranks"]), (2, 1))

    def test_ranks_need_not_share_the_folder(self):
        self.alone("alone", *FOUR, "--steps", "20")
        folders = [self.folder / str(rank) for rank in range(3)]
        for folder in folders:
            folder.mkdir()
        for rank in self.by_hand(3, "out", *FOUR, "--steps", "20", folders=folders):
            self.end(rank)
        self.assert_same_bits("0/out", "alone")
        self.assertEqual([list(folder.iterdir()) for folder in folders[1:]], [[], []])

    def test_a_killed_rank_is_made_good_on_another_number_of_ranks(self):
        long = [*FOUR, "--steps", "600"]
        torchrun = self.torchrun(2, "killed", *long)
        self.kill_second_rank(torchrun, "killed/checkpoints/log_length-seed1.safetensors")
        _, err = self.end(torchrun, 1)
        self.assertIn("to go on, on any number of ranks:", err)
        self.assertFalse((self.folder / "killed/result.json").exists())
        ranks = self.by_hand(3, "killed", *long, "--resume")
        said = [self.end(rank)[1] for rank in ranks]
        self.assertIn("log_length, seed 1: going on after step", said[0])
        self.assertEqual(said[1:], ["", ""])
        self.alone("alone", *long)
        self.assert_same_bits("killed", "alone")

    def test_more_ranks_than_trainings_train_each_together(self):
        # Gradients of 1.7 MiB: two buckets. Shares of 1, 2 and 2 windows.
        options = [*ONE, "--layers", "2", "--width", "128", "--steps", "40"]
        self.alone("alone", *options)
        for rank in self.by_hand(3, "three", *options):
            self.end(rank)
        alone, three = (self.result(name)["rules"][0] for name in ("alone", "three"))
        self.assertEqual(len(alone["loss"]), 40)
        self.assertNotEqual(alone["loss"], three["loss"])  # the sums have another order
        for a, b in zip(alone["loss"], three["loss"]):
            self.assertAlmostEqual(a, b, delta=2e-5)
        self.assertAlmostEqual(alone["cross_entropy"]["8"], three["cross_entropy"]["8"], delta=1e-4)

    def test_torchrun_starts_a_group_again_with_the_bits_of_one_go(self):
        long = [*ONE, "--steps", "500"]
        self.end(self.torchrun(2, "at-one-go", *long))
        torchrun = self.torchrun(2, "killed", *long, launcher=["--max-restarts", "1"])
        self.kill_second_rank(torchrun, "killed/checkpoints/standard-seed1.safetensors")
        _, err = self.end(torchrun)
        self.assertIn("going on after step", err)
        self.assert_same_bits("killed", "at-one-go")

    def test_what_goes_wrong_on_one_rank_is_said_on_all(self):
        first, second = (self.end(rank, code) for rank, code in
                         zip(self.by_hand(2, "refused", "--lengths", "8,100000"), (2, 1)))  # fmt: skip
        self.assertIn("isentrope extrapolate: [corpus] the text must have", first[1])
        self.assertEqual(second[1], first[1].replace(": ", ": rank 0: ", 1))
        self.assertFalse((self.folder / "refused").exists())

        ranks = self.by_hand(2, "diverged", *FOUR, "--learning-rate", "1e30", "--steps", "60")
        said = [self.end(rank, 1)[1] for rank in ranks]
        self.assertTrue(all("a lower learning rate may help" in text for text in said), said)

    def test_a_rank_of_a_group_that_is_gone_is_noticed(self):
        first, second = self.by_hand(2, "gone", *ONE, "--steps", "100000")
        while first.poll() is None and not (self.folder / "gone/checkpoints/standard-seed1.safetensors").exists():
            time.sleep(0.01)
        second.kill()
        second.communicate()
        self.assertIn("[ranks] the 2 ranks that train together must all be there; got ", self.end(first, 2)[1])

    def test_ranks_of_other_experiments_are_refused(self):
        ranks = self.by_hand(2, "out", *FOUR, "--steps", "20", second=["--steps", "30"])
        says = "[ranks] steps must be the same on every rank; got 20 on rank 0 and 30 here"
        for rank, code, text in zip(ranks, (1, 2), ("rank 1: " + says, says)):
            self.assertEqual(self.end(rank, code)[1].splitlines()[-1], "isentrope extrapolate: " + text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
