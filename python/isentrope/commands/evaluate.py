"""isentrope evaluate MODEL --text FILE: the command."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from isentrope._core.files import name_of, read_text
from isentrope.commands.frame import Outputs, Parser, command, progress_of, text_count, token_count, whole_number
from isentrope.commands.reading import dtype_of, identity_of, load_causal, passages_of

_DISTANCES = 8


def _parser() -> Parser:
    parser = Parser(
        prog="isentrope evaluate",
        description="Measures the loss of a causal model by position, and how well it retrieves facts from far back, under "
        "several scale rules: paired differences from the first rule, with their 95 % intervals.",
        epilog="example: isentrope evaluate ./SmolLM2-135M --text novel.txt --rope yarn:4 "
        "--rules standard 'scaled(1.127)' --lengths 4096 8192 12288",
    )
    parser.add_model_and_text("the text that the model reads")
    parser.add_argument("--rope", default="none", metavar="STRETCH", help="none, linear:S, dynamic:S, ntk:S, yarn:S, or JSON (none)")
    parser.add_argument("--rules", nargs="+", default=["standard"], metavar="RULE", help="scale rules; each is compared with the first (standard)")
    parser.add_argument("--lengths", nargs="+", type=whole_number(0, 100_000_000), default=[0, 2048, 4096], metavar="N",
                        help="edges of the bins of positions, multiples of 256 (0 2048 4096)")  # fmt: skip
    parser.add_argument("--passages", type=text_count, default=4, help="number of passages of the file, evenly spaced (4)")
    parser.add_argument("--chunk", type=token_count, default=1024, help="tokens in one pass of the model (1024)")
    parser.add_argument("--retrieval", action="store_true", help="also ask for numbers at 8 distances")
    parser.add_dtype_and_resume()
    parser.add_json()
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the report, one HTML file")
    return parser


def _questions(tokenizer: Any, passages: list[Any]) -> list[Any]:
    from isentrope.models.retrieval import prompt

    length = passages[0].numel()
    distances = [length * (i + 1) // (_DISTANCES + 1) for i in range(_DISTANCES)]
    return [prompt(tokenizer, passage, distances, seed=i) for i, passage in enumerate(passages)]


def _retrieved(model: Any, methods: list[Any], prompts: list[Any], chunk: int) -> list[dict]:
    from isentrope import hf
    from isentrope.hf.calibrated import set_rules
    from isentrope.models.retrieval import retrieval
    from isentrope.hf.rope import stretched

    rows = []
    with hf.reading(model):
        try:
            for method in methods:
                with stretched(model, method.rope):
                    set_rules(model, method.rules)
                    nll = [retrieval(model, one, chunk) for one in prompts]
                by_distance = [sum(column) / len(column) for column in zip(*nll)]
                rows.append({"method": method.name, "distance": prompts[0].distances, "nll": by_distance})
        finally:
            set_rules(model, None)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'positions':>15} {'nats':>8} {'difference':>11} {'95 % over passages':>20} {'SE blocks':>10}  method"]
    for row in rows:
        where = f"{row['from']}-{row['to']}"
        blocks = "" if row["se"] is None else f"{row['se']:.4f}"
        interval = "" if row["low"] is None else f"[{row['low']:+.4f}, {row['high']:+.4f}]"
        lines.append(
            f"{where:>15} {row['mean']:8.4f} {row['difference']:+11.4f} {interval:>20} {blocks:>10}  {row['method']}"
        )
    return "\n".join(lines)


def _evaluated(options: argparse.Namespace) -> dict[str, Any]:
    from isentrope.models.evaluate import Method, Results, check_lengths, evaluate
    from isentrope.hf.rope import parse
    from isentrope.rules import ScaleRule

    rope, dtype = parse(options.rope), dtype_of(options.dtype)
    methods = [Method(rule, rope, [ScaleRule(rule)]) for rule in options.rules]
    check_lengths(options.lengths)
    text = read_text(options.text)
    model, tokenizer = load_causal(options.model, dtype, "evaluate")
    passages = passages_of(tokenizer, text, options.passages, options.lengths[-1] + 1, "evaluate")
    prompts = _questions(tokenizer, passages) if options.retrieval else []
    settings = {
        "model": name_of(options.model), "text": name_of(options.text), "rope": rope.parameters, "dtype": dtype,
        "lengths": options.lengths, "chunk": options.chunk, "passages": len(passages),
    }  # fmt: skip
    if options.resume is not None:
        settings |= identity_of(model, passages)
    differences = evaluate(
        model, passages, methods, lengths=options.lengths, chunk=options.chunk,
        results=Results(options.resume, settings), progress=progress_of("evaluate"),
    )  # fmt: skip
    result = {
        "kind": "evaluation", "version": 1, "model": name_of(options.model), "text": name_of(options.text),
        "rope": rope.text, "dtype": dtype, "passages": len(passages), "nll": [difference.to_dict() for difference in differences],
    }  # fmt: skip
    if options.retrieval:
        result["retrieval"] = _retrieved(model, methods, prompts, options.chunk)
    return result


def _evaluate(options: argparse.Namespace) -> None:
    outputs = Outputs(options.json, page=options.output, resume=options.resume)
    result = _evaluated(options)
    answers = [
        f"answers of {row['method']}: "
        + " ".join(f"{distance}: {nll:.2f}" for distance, nll in zip(row["distance"], row["nll"]))
        for row in result.get("retrieval", [])
    ]
    outputs.write(result, "\n".join([table(result["nll"]), *answers]))


main = command("evaluate", _parser, _evaluate, __name__)
