#!/usr/bin/env python3
"""Trains RoFormer-small on windows of 64 tokens under each rule, and reads every model at 64 ... 1024.

    tools/lab/note/train.py --corpus data/note --seconds 70 --seeds 5 --output results/note/models     # on a GPU
    tools/lab/note/train.py --corpus data/note --tiny --tokens 20000 --output results/tiny              # on a CPU, in seconds

Models of one seed begin with the same weights and see the same batches with the same masks. Each has a record of what was
measured, OUTPUT/models/RULE-seedSEED.json, which is written when the model is done: started again, also after Ctrl-C, the
command goes on with the models that have none. A process takes the first GPU that no other training has, so as many as
there are GPUs can run side by side: scripts/study starts them, on several machines too.
"""

import argparse
import contextlib
import fcntl
import json
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from evaluate import evaluate, reported_text
from model import ROFORMER_SMALL, TINY, RoFormer, Scale, Size
from objective import MASKED, OBJECTIVES, TRAINED_LENGTH, Batch, Vocabulary
from torch import Tensor

LEARNING_RATE, WARM_UP = 1e-3, 400  # steps
WINDOWS, TINY_WINDOWS = 512, 16  # of each step
TIMED = 60  # steps, after which the speed is known
TEST_TOKENS, TINY_TEST_TOKENS = 1 << 19, 1 << 13
SAY_EVERY = 5  # seconds


def description(folder: Path) -> dict:
    """Returns what corpus.py says of its tokens."""
    return json.loads((folder / "corpus.json").read_text())


def name_of(corpus: dict) -> str:
    """Returns the beginning of the hash of the text that models are trained on."""
    return corpus["parts"]["train"]["sha256"][:16]


class Corpus:
    """Tokens of corpus.py, on a device."""

    def __init__(self, folder: Path, device: torch.device, test_tokens: int) -> None:
        about = description(folder)
        self.vocabulary = Vocabulary(about["vocabulary"], about["mask"], about["first_ordinary"])
        self.name = name_of(about)
        test = about["parts"]["test"]
        self.bytes_per_token = test["characters"] / test["tokens"]
        self.train = self._read(folder / "train.npy", device)
        self.test = self._read(folder / "test.npy", device)[:test_tokens]

    @staticmethod
    def _read(path: Path, device: torch.device) -> Tensor:
        tokens = np.load(path, mmap_mode="r")
        if tokens.dtype != np.uint16 or tokens.ndim != 1 or len(tokens) < 2 * TRAINED_LENGTH:
            raise ValueError(f"[train] {path} must hold uint16 tokens in a row; got {tokens.dtype} {tokens.shape}")
        return torch.from_numpy(tokens.astype(np.int32)).to(device)


class Training:
    """One model with its optimiser and its random batches. On a GPU each step replays one CUDA graph."""

    def __init__(self, size: Size, windows: int, rule: str, objective: str, seed: int, corpus: Corpus) -> None:
        self.device, self.corpus, self.windows = corpus.train.device, corpus, windows
        torch.manual_seed(seed)  # of the weights, which are drawn on the CPU
        self.model = RoFormer(size, corpus.vocabulary.size).to(self.device)
        self.batch_of, options = OBJECTIVES[objective]
        self.scale = Scale(rule, options)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.rate = torch.zeros((), device=self.device)
        matrices = [p for p in self.model.parameters() if p.dim() > 1]
        vectors = [p for p in self.model.parameters() if p.dim() == 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}],
            lr=self.rate, betas=(0.9, 0.98), fused=True, capturable=self.device.type == "cuda")  # fmt: skip
        self.loss = torch.zeros((), device=self.device)
        self.batch = self._draw()
        self.graph = self._captured() if self.device.type == "cuda" else None

    def _draw(self) -> Batch:
        starts = torch.randint(len(self.corpus.train) - TRAINED_LENGTH, (self.windows, 1), device=self.device,
                               generator=self.generator)  # fmt: skip
        ids = self.corpus.train[starts + torch.arange(TRAINED_LENGTH, device=self.device)].long()
        return self.batch_of(ids, self.corpus.vocabulary, self.generator)

    def _step(self) -> None:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            logits = self.model(self.batch.ids, self.batch.positions, self.scale)
        loss = F.cross_entropy(logits.float().flatten(0, 1), self.batch.labels.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        self.loss.copy_(loss.detach())

    def _captured(self) -> torch.cuda.CUDAGraph:
        """Captures a step. Warm-up steps have learning rate 0, and the moments that they leave are cleared."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._step()
                self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.current_stream().wait_stream(side)
        for state in self.optimizer.state.values():
            for moment in state.values():
                moment.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
            self.optimizer.zero_grad(set_to_none=False)
        return graph

    def advance(self, step: int, steps: int) -> None:
        """Takes one step. The rate rises over WARM_UP steps, or a fifth of all, and falls linearly to 0 at `steps`."""
        warm_up = min(WARM_UP, max(1, steps // 5))
        self.rate.fill_(LEARNING_RATE * min(1.0, (step + 1) / warm_up) * (1 - step / steps))
        self.batch.copy_(self._draw())
        if self.graph is not None:
            self.graph.replay()
        else:
            self._step()
            self.optimizer.zero_grad()


def run(training: Training, steps: int | None, seconds: float, say: Callable[[str], None]) -> tuple[int, float, list[float]]:
    """Trains for `steps`, or for about `seconds`. Returns the number of steps, the seconds of each, and some losses."""
    began = said = time.monotonic()
    step, losses = 0, []
    while steps is None or step < steps:
        training.advance(step, steps or 1_000_000)  # the rate is still rising when `steps` is not known
        step += 1
        if steps is None and step == TIMED:
            float(training.loss)  # waits for the device
            steps = max(step, round(seconds * step / (time.monotonic() - began)))
        if steps and step % max(1, steps // 60) == 0:
            losses.append(float(training.loss))
            passed = time.monotonic() - began
            if time.monotonic() - said > SAY_EVERY or step == steps:
                said = time.monotonic()
                speed = step * training.windows * TRAINED_LENGTH / passed
                say(f"step {step} of {steps}, loss {losses[-1]:.3f}, {speed:,.0f} tokens/s, {passed / step * (steps - step):.0f} s left")
    return step, (time.monotonic() - began) / step, losses


@contextlib.contextmanager
def first_free(names: list[str]) -> Iterator[int]:
    """Yields the index of the first device that no other process holds. Waits while all are held."""
    with contextlib.ExitStack() as files:
        locks = [files.enter_context(open(f"{tempfile.gettempdir()}/isentrope-note-{name}.lock", "w")) for name in names]
        while True:
            for i, lock in enumerate(locks):
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held until the file is closed
                except BlockingIOError:
                    continue
                yield i
                return
            time.sleep(1)


@contextlib.contextmanager
def free_device(wanted: str | None) -> Iterator[torch.device]:
    """Yields the requested device, or the first GPU without another training, or the CPU if there is none."""
    if wanted or not torch.cuda.is_available():
        yield torch.device(wanted or "cpu")
        return
    with first_free([torch.cuda.get_device_properties(i).uuid for i in range(torch.cuda.device_count())]) as i:
        torch.cuda.set_device(i)
        yield torch.device("cuda", i)


def program(device: torch.device) -> dict:
    """Returns a record's description of code and machine. A carried folder has the commit in a file."""
    file = Path(__file__).with_name("commit.txt")
    git = ["git", "describe", "--always", "--abbrev=40", "--dirty=+changes"]
    commit = file.read_text() if file.exists() else subprocess.run(git, cwd=file.parent, capture_output=True, text=True).stdout
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {"commit": commit.strip(), "torch": torch.__version__, "device": name}


def size_of(options: argparse.Namespace) -> tuple[Size, int]:
    """Returns the size of the model, and the number of windows of a step."""
    return (TINY, TINY_WINDOWS) if options.tiny else (ROFORMER_SMALL, WINDOWS)


def read_record(file: Path, steps: int | None, options: argparse.Namespace) -> dict:
    """Returns the record of a finished model. Raises ValueError if this command would have trained another one."""
    record = json.loads(file.read_text())
    size, windows = size_of(options)
    wanted = {"objective": options.objective, "layers": size.layers, "width": size.width, "batch": windows,
              "corpus": name_of(description(options.corpus))}  # fmt: skip
    if steps is not None:
        wanted["steps"] = steps
    for key, value in wanted.items():
        found = record["configuration"].get(key)
        if found != value:
            raise ValueError(f"{file} is a model of {key} {found}; this command trains {key} {value}. Choose another --output")
    return record


def measured(rule: str, seed: int, steps: int | None, options: argparse.Namespace, corpus: Corpus) -> dict:
    """Trains one model, and returns its record (docs/result-schema.md)."""
    size, windows = size_of(options)

    def say(text: str) -> None:
        print(f"[note] {rule}, seed {seed}: {text}", file=sys.stderr, flush=True)

    training = Training(size, windows, rule, options.objective, seed, corpus)
    steps, seconds_per_step, losses = run(training, steps, options.seconds, say)
    model = training.model.eval()
    found = evaluate(model, rule, options.rescaled, options.objective, corpus.test, corpus.vocabulary, say)
    found["evaluation"]["bytes_per_token"] = corpus.bytes_per_token
    return {
        "rule": reported_text(rule), "seed": seed, "parameters": sum(p.numel() for p in model.parameters()),
        "seconds_per_step": seconds_per_step, "loss": losses, **found,
        "configuration": {
            "rule": reported_text(rule), "seed": seed, "model": "roformer", "positions": "rope", "init": "bert",
            "objective": options.objective, "layers": size.layers, "width": size.width, "heads": size.heads, "batch": windows,
            "steps": steps, "train_length": TRAINED_LENGTH, "masked": MASKED, "learning_rate": LEARNING_RATE,
            "warm_up": WARM_UP, "vocabulary": corpus.vocabulary.size, "corpus": corpus.name,
        },
        "program": program(corpus.train.device),
    }  # fmt: skip


def train_all(options: argparse.Namespace) -> list[dict]:
    """Trains the models without a record, and returns the records of all."""
    folder = options.output / "models"
    folder.mkdir(parents=True, exist_ok=True)
    seeds = range(1, options.seeds + 1) if options.seed is None else [options.seed]
    tokens_per_step = size_of(options)[1] * TRAINED_LENGTH
    steps = None if options.tokens is None else max(1, round(options.tokens / tokens_per_step))
    records, corpus = [], None
    with free_device(options.device) as device:
        for seed in seeds:
            for rule in options.rules:
                file = folder / f"{reported_text(rule).replace('(', '-').replace(')', '').replace(',', '-')}-seed{seed}.json"
                if not file.exists():
                    corpus = corpus or Corpus(options.corpus, device, TINY_TEST_TOKENS if options.tiny else TEST_TOKENS)
                    part = file.with_suffix(".part")
                    part.write_text(json.dumps(measured(rule, seed, steps, options, corpus)))
                    part.replace(file)
                records.append(read_record(file, steps, options))
                steps = records[-1]["configuration"]["steps"]  # the same for all models
    return records


def split_rules(text: str) -> list[str]:
    """Splits at the commas outside brackets, and checks each rule. In a rule, brackets behind a comma are of a list alone."""
    rules = re.split(r",(?![^(]*\))", text)
    for rule in rules:
        reported_text(rule)
    return rules


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="the folder that corpus.py wrote")
    parser.add_argument("--rules", default="standard,entropy_invariant(base=512)", help="one model for each; unit(RULE): of cosines")
    parser.add_argument("--rescaled", default="entropy_invariant(base=64)", help="what the finished model of standard is read with")
    parser.add_argument("--objective", choices=OBJECTIVES, default="mlm")
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--tokens", type=float, help="that each model is trained on")
    length.add_argument("--seconds", type=float, default=0.0, help="for the first model; the others read as many tokens")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seeds", type=int, default=1, help="1 ... SEEDS")
    which.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--resume", action="store_true", help="accepted, as finished models are never trained again")
    parser.add_argument("--device", help="such as cuda:0; otherwise the first GPU that no other training has, or the CPU")
    parser.add_argument("--tiny", action="store_true", help="2 layers of width 64, 16 windows a step, 8,192 tokens of test")
    parser.add_argument("--json", action="store_true", help="print the records")
    options = parser.parse_args(arguments)
    try:
        options.rules = split_rules(options.rules)
        options.rescaled = [] if options.rescaled == "none" else split_rules(options.rescaled)
    except ValueError as error:
        parser.error(str(error))
    return options


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    try:
        records = train_all(options)
    except KeyboardInterrupt:
        print(f"[note] stopped: the same command goes on from {options.output}", file=sys.stderr)
        return 130
    except (OSError, ValueError) as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(records))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
