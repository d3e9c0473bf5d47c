#!/usr/bin/env python3
"""Does the gain that restores a stretched model's entropy help it read, and is it the best constant gain?

    calibrate_study.py MODEL TEXT... --rope yarn:2 yarn:4 --passages 2 --lengths 0 8192 10240 12288 16384
        --output results/study.json --work results/study

The protocol, fixed before any result was seen. Passages of each text, taken from its second half at even distances; each is
read with RoPE stretched by YaRN and with constant gains: none, e^0.06, e^0.12, e^0.18, e^0.26, the measured one, one for each
head, and YaRN's own; and without a stretch, with the same constant gains, with logn, and with each head's entropy held beyond
the trained length (its gain grows with ln n by its slope over its variance). Losses in bins up to and beyond the trained
length; differences to no gain, and to the measured one, paired by passage and block. Gains are measured on the first half of
the same text, in 3,072 tokens twice. Of each text one passage tells the entropy of every head by position, stretched and
not. Numbers are bfloat16, in which the claims that this repeats were made. Nothing is left out afterwards. What is finished
is kept in the folder --work, and the next start goes on from it.
"""

import argparse
import json
import math
from pathlib import Path

import torch

from isentrope import hf
from isentrope.commands.frame import progress_of
from isentrope.commands.reading import load_causal, passages_of
from isentrope.hf.rope import parse, stretched, trained_length, yarn_attention_factor
from isentrope.models import evaluate as evaluation
from isentrope.models.calibrate import LEAST_VARIANCE, calibrate, entropies, rules_of
from isentrope.models.evaluate import BLOCK, Method, Results
from isentrope.models.heads import for_json as finite
from isentrope.models.heads import slopes
from isentrope.rules import ScaleRule

GRID = (0.06, 0.12, 0.18, 0.26)
CALIBRATION_LENGTH, CALIBRATION_TEXTS = 3072, 2


def kept(file, measure):
    """What `measure` finds, asked for once."""
    if not file.exists():
        found = measure()
        part = file.with_suffix(".part")
        part.write_text(json.dumps(found))
        part.replace(file)
    return json.loads(file.read_text())


def gains_of(model, texts, stretch):
    by_head, single = calibrate(model, texts, rope=stretch, per="head"), calibrate(model, texts, rope=stretch)
    return {"by_head": by_head.log_gains.tolist(), "single": single.log_gain, "mean_by_head": by_head.log_gain,
            "steps": single.steps}  # fmt: skip


def held_growth(model, tokens):
    """A gain for each head that grows with ln n beyond the trained length, as much as keeps its entropy: dH / d ln n = slope,
    and dH / d ln lambda = -variance. No gain for heads whose rows never see more keys, or all the same number."""
    with hf.reading(model):
        found = entropies(model, [tokens])
    growth = slopes(found.entropy, found.log_n) / found.variance.mean(0).clamp(min=LEAST_VARIANCE)
    return growth.nan_to_num(0, 0, 0).tolist()


def held(trained, growth):
    rules = []
    for layer in growth:
        offsets = [1 - slope * math.log(trained) for slope in layer]
        rules.append(ScaleRule.ssmax(layer, offsets, n_min=trained))
    return rules


def heads_of(model, passage, stretches):
    """Entropy of every head [layers][heads]: its slope over ln n within the trained length, and where it stands by position."""
    trained = trained_length(model)
    longer = trained * 3 // 2

    def ends(entropy):
        return {str(n): entropy[n // BLOCK - 1].tolist() for n in (trained, longer) if n // BLOCK <= len(entropy)}

    with hf.reading(model):
        unstretched = entropies(model, [passage[:trained]])
        found = {"slope": finite(slopes(unstretched.entropy, unstretched.log_n)), "unstretched": ends(unstretched.entropy)}
        for stretch in stretches:
            with stretched(model, parse(stretch)):
                found[stretch] = ends(entropies(model, [passage[:longer]]).entropy)
    return found


def methods_of(stretch, gains):
    def gain(name, log_gains):
        return Method(f"{stretch} {name}", parse(stretch), rules_of(torch.tensor(log_gains, dtype=torch.float64)))

    published = 2 * math.log(yarn_attention_factor(parse(stretch).factor))
    return [
        Method(f"{stretch} no gain", parse(stretch)),
        gain("one gain", [[gains["single"]]]),
        gain("a gain per head", gains["by_head"]),
        *(gain(f"gain e^{x}", [[x]]) for x in GRID),
        gain("YaRN's own gain", [[published]]),
    ]


def compared(results, methods, passages, lengths):
    """Differences to the first method and to the second."""
    return {
        against.name.split(" ", 1)[1]: [
            difference.to_dict()
            for difference in evaluation.compare(
                results, [against, *(m for m in methods if m is not against)], passages, lengths
            )
        ]
        for against in methods[:2]
    }


class Study:
    def __init__(self, model, tokenizer, arguments):
        self.model, self.tokenizer, self.arguments = model, tokenizer, arguments
        self.stretches, self.lengths = arguments.rope, arguments.lengths
        self.texts = []
        self.pooled = Results(None, {})
        self.groups = []
        self.trained = trained_length(model)

    def plain(self, growth):
        return [
            Method("unstretched no gain"),
            Method("unstretched logn", rules=[ScaleRule.logn(self.trained)]),
            Method("unstretched entropy held by head", rules=held(self.trained, growth)),
            *(Method(f"unstretched gain e^{x}", rules=rules_of(torch.tensor([[x]]).double())) for x in GRID),
        ]

    def add(self, text):
        name, work, count = text.stem, self.arguments.work, self.arguments.passages
        content = text.read_text(errors="replace")
        half = len(content) // 2
        texts = passages_of(self.tokenizer, content[:half], CALIBRATION_TEXTS, CALIBRATION_LENGTH, "study")
        passages = passages_of(self.tokenizer, content[half:], count, self.lengths[-1] + 1, "study")
        found = {"text": text.name, "passages": len(passages), "tokens": [int(p.sum()) for p in passages]}
        found["heads"] = kept(work / f"{name}-heads.json", lambda: heads_of(self.model, passages[0], self.stretches))
        found["gains"] = {
            s: kept(work / f"{name}-{s.replace(':', '-')}-gains.json", lambda: gains_of(self.model, texts, parse(s)))
            for s in self.stretches
        }
        whole = passages_of(self.tokenizer, content[:half], 1, self.trained, "study")[0]
        found["growth"] = kept(work / f"{name}-growth.json", lambda: held_growth(self.model, whole))
        # Their gains differ from text to text, their names do not.
        self.groups = groups = [methods_of(s, found["gains"][s]) for s in self.stretches]
        groups.append(self.plain(found["growth"]))
        results = Results(work / f"{name}.jsonl", {"text": text.name, "tokens": found["tokens"]})
        for methods in groups:
            evaluation.evaluate(
                self.model, passages, methods, lengths=self.lengths, results=results, progress=progress_of(name)
            )
        found["nll"] = [compared(results, methods, len(passages), self.lengths) for methods in groups]
        self._pool(results, groups, len(passages))
        self.texts.append(found)

    def _pool(self, results, groups, passages):
        before = sum(text["passages"] for text in self.texts)
        for methods in groups:
            for method in methods:
                for index in range(passages):
                    self.pooled.add(method.name, before + index, results.get(method.name, index))

    def to_dict(self):
        passages = sum(text["passages"] for text in self.texts)
        return {
            "kind": "calibration study", "version": 1, "model": self.arguments.model.name, "dtype": "bfloat16",
            "passages": passages, "nll": [compared(self.pooled, group, passages, self.lengths) for group in self.groups],
            "texts": self.texts,
        }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--passages", type=int, required=True)
    parser.add_argument("--rope", nargs="+", required=True)
    parser.add_argument("--lengths", nargs="+", type=int, required=True)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    study = Study(*load_causal(arguments.model, "bfloat16", "study"), arguments)
    for text in arguments.texts:
        study.add(text)
        arguments.output.write_text(json.dumps(study.to_dict()) + "\n")


if __name__ == "__main__":
    main()
