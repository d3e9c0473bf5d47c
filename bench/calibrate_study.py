#!/usr/bin/env python3
"""Does the gain that restores a stretched model's entropy help it read, and is it the best constant gain?

    calibrate_study.py MODEL TEXT... --output docs/results/calibrate.json --work results/calibrate-study

The protocol, fixed before any result was seen: SmolLM2-135M (trained on 8,192 tokens), YaRN with s = 2 and 4, six passages of
each text, taken from its second half at even distances; gains e^0, e^0.06, e^0.12, e^0.18, e^0.26, the measured one, one for
each head, and YaRN's own; losses in bins up to twice the trained length; differences to no gain, paired by passage and block.
The gains are measured on the first half of the same text. Nothing is left out afterwards. Finished passages are kept in the
folder --work, and the next start goes on from them.
"""

import argparse
import json
import math
from pathlib import Path

import torch

from isentrope import evaluation
from isentrope._command_line import progress_of
from isentrope.calibration import calibrate, rules_of
from isentrope.evaluate_command import load_model, passages_of
from isentrope.evaluation import Method, Results
from isentrope.rope import NO_STRETCH, parse, yarn_attention_factor

GRID = (0.06, 0.12, 0.18, 0.26)
LENGTHS = (0, 2048, 4096, 8192, 12288, 16384)
CALIBRATION_LENGTH, CALIBRATION_TEXTS = 3072, 2


def measured(model, texts, stretch, file):
    """The gain per head and the single one, measured once."""
    if file.exists():
        return json.loads(file.read_text())
    by_head = calibrate(model, texts, rope=stretch, per="head")
    single = calibrate(model, texts, rope=stretch)
    found = {"by_head": by_head.log_gains.tolist(), "single": single.log_gain, "mean_by_head": by_head.log_gain,
             "steps": single.steps}  # fmt: skip
    file.write_text(json.dumps(found))
    return found


def methods(stretch, found):
    def gain(name, log_gains):
        return Method(name, stretch, rules_of(torch.tensor(log_gains, dtype=torch.float64)))

    published = 2 * math.log(yarn_attention_factor(stretch.factor))
    return [
        Method("no gain", stretch),
        gain("one gain", [[found["single"]]]),
        gain("a gain per head", found["by_head"]),
        *(gain(f"gain e^{x}", [[x]]) for x in GRID),
        gain("YaRN's own gain", [[published]]),
        Method("unstretched", NO_STRETCH),
    ]


def study(model, tokenizer, text, stretch, arguments):
    name = f"{text.stem}-{stretch.text.replace(':', '-')}"
    content = text.read_text(errors="replace")
    half = len(content) // 2
    texts = passages_of(tokenizer, content[:half], CALIBRATION_TEXTS, CALIBRATION_LENGTH, "study")
    passages = passages_of(tokenizer, content[half:], arguments.passages, LENGTHS[-1] + 1, "study")
    found = measured(model, texts, stretch, arguments.work / f"{name}-gains.json")
    settings = {"text": text.name, "rope": stretch.text, "passages": [int(p.sum()) for p in passages], "dtype": arguments.dtype}
    results = Results(arguments.work / f"{name}.jsonl", settings)
    nll = evaluation.evaluate(
        model, passages, methods(stretch, found), lengths=LENGTHS, results=results, progress=progress_of(name)
    )
    return {"text": text.name, "rope": stretch.text, "passages": len(passages), "gains": found,
            "nll": [difference.to_dict() for difference in nll]}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--passages", type=int, default=6)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    model, tokenizer = load_model(arguments.model, arguments.dtype, "study")
    done = []
    for stretch in (parse("yarn:2"), parse("yarn:4")):
        for text in arguments.texts:
            done.append(study(model, tokenizer, text, stretch, arguments))
            arguments.output.write_text(json.dumps({"model": arguments.model.name, "studies": done}) + "\n")


if __name__ == "__main__":
    main()
