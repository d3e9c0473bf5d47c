"""isentrope evaluate MODEL --text FILE: the command."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from isentrope._command_line import check_outputs, count, progress_of, run, write_report

_DISTANCES = 8


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="isentrope evaluate",
        description="Loss of a causal model by position, and whether it finds what it was told far back, for several "
        "scale rules and ways to stretch RoPE: paired differences to the first of them, with standard errors.",
        epilog="example: isentrope evaluate ./SmolLM2-135M --text novel.txt --rope yarn:4 "
        "--rules standard 'scaled(1.127)' --lengths 4096 8192 12288",
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="a folder as save_pretrained writes it, or a GGUF file")
    parser.add_argument("--text", type=Path, required=True, metavar="FILE", help="what the model reads")
    parser.add_argument("--rope", default="none", metavar="STRETCH", help="none, linear:S, dynamic:S, ntk:S, yarn:S, or JSON (none)")
    parser.add_argument("--rules", nargs="+", default=["standard"], metavar="RULE", help="scale rules, the first is compared with")
    parser.add_argument("--lengths", nargs="+", type=int, default=[0, 2048, 4096], metavar="N",
                        help="edges of the bins of positions, multiples of 256 (0 2048 4096)")  # fmt: skip
    parser.add_argument("--passages", type=count, default=4, help="how many stretches of the file, evenly spread (4)")
    parser.add_argument("--chunk", type=count, default=1024, help="tokens that go through the model at once (1024)")
    parser.add_argument("--retrieval", action="store_true", help="ask for numbers at 8 distances as well")
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto",
                        help="of weights and cache (auto: bfloat16 where the processor multiplies it, else float32)")  # fmt: skip
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keep finished passages there, and go on from them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the result as JSON; - for standard output")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the report, one HTML file")
    return parser


def passages_of(tokenizer: Any, text: str, passages: int, length: int, command: str) -> list[Any]:
    """Evenly spread stretches of `length` tokens. ValueError where the text is too short for one."""
    from isentrope.inspect_command import _tokenised

    found = [tokens for tokens in _tokenised(tokenizer, text, passages, length) if tokens.numel() >= length]
    if not found:
        raise ValueError(f"[{command}] the text must have at least {length} tokens; got fewer")
    return found


def dtype_of(asked: str) -> str:
    """What "auto" means here: prefill of SmolLM2-135M in bfloat16 takes half the time where the processor multiplies it."""
    import torch

    # Older versions of torch do not tell what a processor has.
    has = getattr(torch.cpu, "get_capabilities", dict)()
    fast = has.get("avx512_bf16") or has.get("amx_bf16")
    return ("bfloat16" if fast else "float32") if asked == "auto" else asked


def load_model(path: Path, dtype: str, command: str) -> tuple[Any, Any]:
    import torch

    from isentrope.inspect_command import load

    model, tokenizer, causal = load(path)
    if not causal:
        raise ValueError(f"[{command}] MODEL must be a causal language model; got {type(model).__name__}")
    return model.to(getattr(torch, dtype)).eval(), tokenizer


def _retrieved(model: Any, tokenizer: Any, methods: list[Any], passages: list[Any], chunk: int) -> list[dict]:
    from isentrope import hf
    from isentrope.evaluation import set_rules
    from isentrope.retrieval import prompt, retrieval
    from isentrope.rope import stretched

    length = passages[0].numel()
    distances = [length * (i + 1) // (_DISTANCES + 1) for i in range(_DISTANCES)]
    asked = [prompt(tokenizer, passage, distances, seed=i) for i, passage in enumerate(passages)]
    found = []
    with hf.reading(model):
        try:
            for method in methods:
                with stretched(model, method.rope):
                    set_rules(model, method.rules)
                    nll = [retrieval(model, one, chunk) for one in asked]
                by_distance = [sum(column) / len(column) for column in zip(*nll)]
                found.append({"method": method.name, "distance": distances, "nll": by_distance})
        finally:
            set_rules(model, None)
    return found


def table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'positions':>15} {'nats':>8} {'difference':>11} {'SE blocks':>10} {'SE passages':>12}  method"]
    for row in rows:
        where = f"{row['from']}-{row['to']}"
        passages = "" if row["se_passages"] is None else f"{row['se_passages']:.4f}"
        lines.append(
            f"{where:>15} {row['mean']:8.4f} {row['difference']:+11.4f} {row['se']:10.4f} {passages:>12}  {row['method']}"
        )
    return "\n".join(lines)


def _evaluated(options: argparse.Namespace) -> dict[str, Any]:
    from isentrope.evaluation import Method, Results, evaluate
    from isentrope.rope import parse
    from isentrope.rules import ScaleRule

    rope, dtype = parse(options.rope), dtype_of(options.dtype)
    methods = [Method(rule, rope, [ScaleRule(rule)]) for rule in options.rules]
    model, tokenizer = load_model(options.model, dtype, "evaluate")
    text = options.text.read_text(errors="replace")
    passages = passages_of(tokenizer, text, options.passages, options.lengths[-1] + 1, "evaluate")
    settings = {
        "model": options.model.name, "text": options.text.name, "rope": rope.parameters, "dtype": dtype,
        "lengths": options.lengths, "passages": [int(p.sum()) for p in passages],
    }  # fmt: skip
    found = evaluate(
        model, passages, methods, lengths=options.lengths, chunk=options.chunk,
        results=Results(options.resume, settings), progress=progress_of("evaluate"),
    )  # fmt: skip
    result = {
        "kind": "evaluation", "version": 1, "model": options.model.name, "text": options.text.name,
        "rope": rope.text, "dtype": dtype, "passages": len(passages), "nll": [difference.to_dict() for difference in found],
    }  # fmt: skip
    if options.retrieval:
        result["retrieval"] = _retrieved(model, tokenizer, methods, passages, options.chunk)
    return result


def main(arguments: list[str] | None = None) -> int:
    """Exits 0, or 2 with a message when an argument does not fit."""
    options = _parser().parse_args(arguments)

    def body() -> None:
        check_outputs("evaluate", [options.json, options.output, options.resume])
        result = _evaluated(options)
        if str(options.json) == "-":
            print(json.dumps(result))
        else:
            print(table(result["nll"]))
            for row in result.get("retrieval", []):
                print(f"answers of {row['method']}: " + " ".join(
                    f"{distance}: {nll:.2f}" for distance, nll in zip(row["distance"], row["nll"])))  # fmt: skip
            if options.json:
                options.json.write_text(json.dumps(result))
        if options.output:
            write_report(result, options.output)

    return run("evaluate", body)


if __name__ == "__main__":
    sys.exit(main())
