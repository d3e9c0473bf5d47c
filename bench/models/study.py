#!/usr/bin/env python3
"""Calibration across models: the gain from entropy beside no gain, YaRN's constant, log n and the best constant.

    study.py data/documents --model own-small results/calibrate-study/own-small --work results/calibrate-study \\
        --output docs/results/calibration-models.json

protocol.json, next to this file, states questions, models and tests; it was written before the first reading. Finished
parts are saved in the folder --work, from which the next start continues. --output has each finished stretch, which is
not read again even if --work is empty, and the verdicts of each complete model. A missing model of the project's own is
trained first.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import torch
from saved_results import Record, StudyError, fingerprint, saved
from trained_models import train
from tune import tuned

from isentrope import hf
from isentrope.commands.frame import progress_of
from isentrope.commands.reading import load_causal, passages_of
from isentrope.hf.calibrated import set_rules
from isentrope.hf.rope import parse, stretched, trained_length, yarn_attention_factor
from isentrope.models.calibrate import calibrate
from isentrope.models.evaluate import BLOCK, Method, Results, evaluate
from isentrope.models.retrieval import prompt, retrieval
from isentrope.rules import ScaleRule

DISTANCES = 8
QUESTIONS = 384  # tokens of eight lines and their questions, and a reserve


def constant(log_gain):
    return [ScaleRule.scaled(round(math.exp(log_gain), 6))]


class Reader:
    """A model and its readings of the documents, saved in a folder."""

    def __init__(self, name, path, protocol, documents, work):
        self.name, self.protocol, self.work = name, protocol, work / "readings" / name
        self.settings = protocol["models"][name]
        self.model, self.tokenizer = load_causal(path, self.settings["dtype"], "study")
        self.trained = trained_length(self.model)
        self.files = {part: sorted((documents / part).glob("*.txt")) for part in ("calibration", "test")}
        self.work.mkdir(parents=True, exist_ok=True)

    def lengths(self, stretch):
        """Returns the edges of the bins: one within the trained length, the others beyond it."""
        return [self.settings.get("from", 0), *self.settings["beyond"][str(stretch)]]

    def passages(self, part, tokens):
        """Returns the beginning of each document."""
        return [
            passages_of(self.tokenizer, file.read_text(errors="replace"), 1, tokens, "study")[0]
            for file in self.files[part]
        ]

    def losses(self, part, stretch, methods):
        """Returns one row a document for each method: the mean loss of each bin."""
        lengths = self.lengths(stretch)
        passages = self.passages(part, lengths[-1] + 1)
        names = [file.stem for file in self.files[part]]
        settings = {"model": self.name, "stretch": stretch, "documents": names, "tokens": [int(p.sum()) for p in passages]}
        results = Results(self.work / f"{part}-{stretch}.jsonl", settings)
        evaluate(
            self.model, passages, methods, lengths=lengths, results=results, progress=progress_of(f"{self.name} {part} {stretch}")
        )

        edges = [edge // BLOCK for edge in lengths]

        def bins(method, passage):
            return [sum(results.get(method, passage, range(a, b))) / (b - a) for a, b in zip(edges, edges[1:])]

        return {m.name: [bins(m.name, i) for i in range(len(passages))] for m in methods}

    def answers(self, stretch, methods):
        """Returns one row a document for each method: the loss of each answer, by the distance to its line."""
        tokens = min(self.lengths(stretch)[-1], self.trained * stretch) - QUESTIONS
        distances = [tokens * (i + 1) // (DISTANCES + 1) for i in range(DISTANCES)]
        passages = self.passages("test", tokens)
        prompts = [prompt(self.tokenizer, passage, distances, seed=i) for i, passage in enumerate(passages)]
        losses_of_answers = {}
        with hf.reading(self.model):
            for method in methods:

                def read(method=method):
                    with stretched(self.model, method.rope):
                        set_rules(self.model, method.rules)
                        try:
                            return [retrieval(self.model, questions) for questions in prompts]
                        finally:
                            set_rules(self.model, None)

                losses_of_answers[method.name] = saved(self.work / f"answers-{stretch}-{method.name}.json", read)
        return {"distances": distances, "nll": losses_of_answers}


def best_constant(reader, stretch):
    """Returns the gain, or none, with the lowest loss beyond the trained length on the calibration documents."""
    grid = [0.0, *reader.protocol["grid"]]
    rope = parse(f"yarn:{stretch}")
    losses = reader.losses("calibration", stretch, [Method(f"e^{x}", rope, constant(x)) for x in grid])
    means = [beyond_of(reader, stretch, losses[f"e^{x}"]) for x in grid]
    totals = [sum(row) for row in means]
    return grid[totals.index(min(totals))]


def beyond_of(reader, stretch, documents):
    """Returns the mean over all positions beyond the trained length for each document."""
    edges = reader.lengths(stretch)
    widths = [b - a for a, b in zip(edges, edges[1:])][1:]
    return [sum(w * x for w, x in zip(widths, bins[1:])) / sum(widths) for bins in documents]


def measured(reader, stretch):
    """Returns the gain from entropy: one number for the model, from text within its trained length."""

    def measure():
        length = min(reader.protocol["calibration_tokens"], reader.trained)
        calibration = calibrate(reader.model, reader.passages("calibration", length), rope=f"yarn:{stretch}")
        return {"log_gain": calibration.log_gain, "steps": calibration.steps}

    return saved(reader.work / f"gain-{stretch}.json", measure)


def stretch_of(reader, stretch):
    rope, gain, best = parse(f"yarn:{stretch}"), measured(reader, stretch), best_constant(reader, stretch)
    methods = [
        Method("entropy", rope, constant(gain["log_gain"])),
        Method("none", rope),
        Method("yarn", rope, constant(2 * math.log(yarn_attention_factor(stretch)))),
        Method("logn", rope, [ScaleRule.logn(reader.trained)]),
    ]
    if best:
        methods.append(Method("best", rope, constant(best)))
    losses, answers = reader.losses("test", stretch, methods), reader.answers(stretch, methods)
    for found in (losses, answers["nll"]):
        found.setdefault("best", found["none"])
    return {
        "log_gain": gain["log_gain"], "best": best, "lengths": reader.lengths(stretch), "losses": losses,
        "beyond": {name: beyond_of(reader, stretch, rows) for name, rows in losses.items()}, "answers": answers,
    }  # fmt: skip


def tuning_of(reader):
    """Returns the factor of each head tuned on loss: constant, and growing with ln n."""
    settings = reader.protocol["tuning"]
    if reader.name not in settings["models"]:
        return None
    stretch = settings["stretch"]
    rope, edges = parse(f"yarn:{stretch}"), reader.lengths(stretch)
    texts = [
        reader.tokenizer(file.read_text(errors="replace")[: 64 * edges[-1]], return_tensors="pt", verbose=False)["input_ids"][0]
        for file in reader.files["calibration"]
    ]
    methods = []
    for form in ("constant", "logn"):
        log_factors = saved(
            reader.work / f"tuned-{form}.json",
            lambda form=form: tuned(reader.model, texts, rope, form, reader.trained, edges[-1], settings),
        )
        methods.append(Method(f"tuned {form}", rope, rules_of_factors(log_factors, form, reader.trained)))
    losses = reader.losses("test", stretch, methods)
    return {"beyond": {name: beyond_of(reader, stretch, rows) for name, rows in losses.items()}}


def rules_of_factors(log_factors, form, trained):
    factors = [[round(math.exp(x), 6) for x in layer] for layer in log_factors]
    if form == "constant":
        return [ScaleRule.scaled(layer) for layer in factors]
    slopes = [[x / math.log(trained) for x in layer] for layer in factors]
    return [ScaleRule.ssmax(layer, [0.0] * len(layer), n_min=trained) for layer in slopes]


def read(name, path, protocol, arguments, record):
    """Reads a model as far as the record lacks it."""
    if name in protocol["training"]["sizes"]:
        train(name, protocol["training"], arguments.documents / "training", path)
    record.begin(name, fingerprint(path if path.is_file() else path / "model.safetensors"))
    reader = Reader(name, path, protocol, arguments.documents, arguments.work)
    for stretch in protocol["stretches"]:
        record.add_stretch(name, stretch, lambda stretch=stretch: stretch_of(reader, stretch))
    record.add_tuning(name, lambda: tuning_of(reader))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", type=Path)
    parser.add_argument("--model", nargs=2, action="append", required=True, metavar=("NAME", "PATH"))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--protocol", type=Path, default=Path(__file__).with_name("protocol.json"))
    arguments = parser.parse_args()
    torch.manual_seed(1)
    protocol = json.loads(arguments.protocol.read_text())
    try:
        record = Record(arguments.output, protocol, arguments.documents)
        for name, path in arguments.model:
            if not record.is_whole(name):
                read(name, Path(path), protocol, arguments, record)
    except StudyError as error:
        print(f"study: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
