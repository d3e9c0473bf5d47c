"""isentrope calibrate MODEL --text FILE --rope yarn:4: the command."""

from __future__ import annotations

import argparse
import json
import math
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from isentrope.commands.evaluate import table
from isentrope._core.files import name_of, read_text
from isentrope.commands.frame import Outputs, Parser, command, progress_of, text_count, token_count, whole_number
from isentrope.commands.reading import dtype_of, identity_of, load_causal, passages_of


def _parser() -> Parser:
    parser = Parser(
        prog="isentrope calibrate",
        description="Measures the gain on the logits that gives a model with stretched RoPE the entropy it has "
        "without the stretch, and keeps it if it lowers the loss on held-out passages by a t test.",
        epilog="example: isentrope calibrate ./SmolLM2-135M --text novel.txt --rope yarn:4 --output rule.json",
    )
    parser.add_model_and_text(
        "ordinary text; the first half is for the measurement, the second for the test. With several files, each is a "
        "document, and the t test is over documents",
        nargs="+",
    )
    parser.add_argument("--rope", required=True, metavar="STRETCH", help="linear:S, dynamic:S, ntk:S, yarn:S, or JSON")
    parser.add_argument("--length", type=token_count, default=3072, help="tokens of each text for the measurement (3072)")
    parser.add_argument("--texts", type=text_count, default=2, help="number of these texts (2); with several files, one of each")
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument("--per-head", dest="per", action="store_const", const="head", help="a gain for each head")
    scope.add_argument("--per-layer", dest="per", action="store_const", const="layer", help="a gain for each layer")
    parser.add_argument("--passages", type=whole_number(0, 10_000), default=3,
                        help="number of passages for the test (3); with several files, one of each; 0: keep the gain untested")  # fmt: skip
    parser.add_argument("--lengths", nargs="+", type=whole_number(0, 100_000_000), metavar="N",
                        help="edges of the bins of positions in the test (0.5, 1 and 1.5 times the trained length)")  # fmt: skip
    parser.add_dtype_and_resume()
    parser.add_json()
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the rule, for isentrope.hf.apply")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report, one HTML file")
    parser.set_defaults(per="model")
    return parser


def _calibrated(options: argparse.Namespace) -> dict[str, Any]:
    from isentrope.models.calibrate import calibrate
    from isentrope.models.evaluate import BLOCK, Results
    from isentrope.hf.rope import parse, trained_length

    rope, dtype, documents = parse(options.rope), dtype_of(options.dtype), [read_text(path) for path in options.text]
    model, tokenizer = load_causal(options.model, dtype, "calibrate")
    trained = trained_length(model)
    lengths = options.lengths or [part * trained // 2 // BLOCK * BLOCK for part in (1, 2, 3)]
    length = min(options.length, trained)
    several = len(documents) > 1
    texts, passages = [], []
    for text in documents:
        half = len(text) // 2
        texts += passages_of(tokenizer, text[:half], 1 if several else options.texts, length, "calibrate")
        if options.passages:
            count = 1 if several else options.passages
            passages += passages_of(tokenizer, text[half:], count, lengths[-1] + 1, "calibrate")
    names = ", ".join(name_of(path) for path in options.text)
    settings = {
        "model": name_of(options.model), "text": names, "rope": rope.parameters, "dtype": dtype,
        "per": options.per, "lengths": lengths, "texts": len(texts), "passages": len(passages),
    }  # fmt: skip
    if options.resume is not None:
        settings |= identity_of(model, texts + passages)
    calibration = calibrate(
        model, texts, rope=rope, per=options.per, passages=passages, lengths=lengths,
        results=Results(options.resume, settings), progress=progress_of("calibrate"),
    )  # fmt: skip
    return calibration.to_dict() | {
        "model": name_of(options.model), "architecture": model.config.get_text_config().model_type,
        "text": names, "documents": len(documents), "texts": len(texts), "length": length, "dtype": dtype,
    }  # fmt: skip


def _as_text(result: dict[str, Any]) -> str:
    entropy = {name: fmean(chain(*layers)) for name, layers in result["entropy"].items()}
    lines = [
        f"entropy {entropy['before']:.3f}; stretched by {result['rope']['text']} {entropy['stretched']:.3f}; "
        f"with a gain of e^{fmean(chain(*result['measured_log_gains'])):.3f} {entropy['calibrated']:.3f}"
    ]
    if result["nll"]:
        lines.append(table(result["nll"]))
    decision = verdict(result) if result["nll"] else "not judged"
    lines.append(f"rule: {result['rule']} ({decision})")
    return "\n".join(lines + [f"{name}: {value}" for name, value in engine_settings(result).items()])


def verdict(result: dict[str, Any]) -> str:
    """Returns whether the gain was kept, and the samples of the t test."""
    from isentrope.models.evaluate import LEAST_PASSAGES

    passages, documents = result["nll"][0]["passages"], result["documents"]
    if passages < LEAST_PASSAGES:
        return f"undecided: the t test takes {LEAST_PASSAGES} passages or more, best of as many documents; got {passages}"
    over = f"{documents} documents" if documents > 1 else f"{passages} passages of one document, which say nothing about other documents"
    return f"{'kept: better' if result['kept'] else 'not kept: no better'} by a t test over {over}"


def engine_settings(result: dict[str, Any]) -> dict[str, str]:
    """Returns the settings of other engines for the same stretch and gain, which exist for YaRN and a single gain.

    transformers multiplies cosines and sines by `attention_factor`, so logits by its square. Recent versions of vLLM do
    so too; older ones read only `attn_factor`, which multiplies YaRN's own 0.1 ln s + 1, and which recent ones ignore.
    llama.cpp always multiplies by YaRN's own factor and by the model's key `rope.scaling.attn_factor`; since its pull
    request 17945 `--yarn-attn-factor` has no effect with YaRN.
    """
    parameters = result["rope"]["parameters"]
    if parameters.get("rope_type") != "yarn" or not isinstance(result["rule"], str):
        return {"transformers, vLLM, llama.cpp": "cannot express this: only YaRN with a single gain"}
    from isentrope.hf.rope import yarn_attention_factor

    factor, trained = parameters["factor"], result["trained_length"]
    wanted = math.exp(result["log_gain"] / 2)
    rope = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": trained}
    rope["attention_factor"] = round(wanted, 6)
    relative = round(wanted / yarn_attention_factor(factor), 6)
    overrides = json.dumps({"rope_parameters": rope | {"attn_factor": relative}})
    return {
        "transformers": f"rope_parameters {json.dumps(rope)}",
        "vLLM": f"--hf-overrides '{overrides}'",
        "llama.cpp": f"--rope-scaling yarn --rope-scale {factor:g} --yarn-orig-ctx {trained} "
        f"--override-kv {result['architecture']}.rope.scaling.attn_factor=float:{relative}",
    }


def _calibrate(options: argparse.Namespace) -> None:
    outputs = Outputs(options.json, options.output, page=options.report, resume=options.resume)
    result = _calibrated(options)
    outputs.write(result, _as_text(result))


main = command("calibrate", _parser, _calibrate, __name__)
