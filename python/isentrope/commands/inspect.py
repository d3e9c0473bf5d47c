"""isentrope inspect MODEL --text FILE: the command."""

from __future__ import annotations

import argparse
import functools
import math
from pathlib import Path
from typing import Any

from isentrope._core.files import name_of, read_text
from isentrope.commands.frame import Outputs, Parser, command, progress_of, text_count, token_count
from isentrope.commands.reading import load, tokenised


def _parser() -> Parser:
    parser = Parser(
        prog="isentrope inspect",
        description="Measures the entropy of every layer and head of a model against the number of keys a row sees.",
        epilog="example: isentrope inspect ./SmolLM2-135M --text novel.txt --output report.html",
    )
    parser.add_model_and_text("the text that the model reads")
    parser.add_argument("--texts", type=text_count, default=4, help="number of passages of the file, evenly spaced (4)")
    parser.add_argument("--max-length", type=token_count, default=4096, help="most tokens of each passage (4096)")
    parser.add_argument("--bases", action="store_true",
                        help="instead, find the base of log n and the line in ln n that keep the entropy of each head constant, "
                        "fitted on every other text")  # fmt: skip
    parser.add_json()
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the report, one HTML file; not with --bases")
    return parser


def readings(texts: list[Any], length: int, causal: bool) -> list[Any]:
    """Returns the text windows to read. One window serves a causal model, whose rows see every n up to `length`. Rows
    of an encoder see the whole window, so it is read at `length` and at each half of it down to 16 tokens."""
    lengths = [length]
    while not causal and lengths[-1] >= 32:
        lengths.append(lengths[-1] // 2)
    return [text[:n] for n in lengths for text in texts]


def _table(result: Any) -> str:
    from isentrope.models.inspect import over_heads

    shown = [f"{'n':>8} {'entropy':>8} {'of ln n':>8} {'1/C':>8} {'max z':>8}"]
    means = {name: x.tolist() for name, x in over_heads(result.mean | {"n": result.n_of_head}).items()}
    for i, n in enumerate(means["n"]):
        if math.isnan(n):  # rows of other heads alone
            continue
        share = means["entropy"][i] / max(math.log(n), 1e-9)
        row = (n, means["entropy"][i], share, means["effective_keys"][i], means["max_logit"][i])
        shown.append(" ".join(f"{x:8.3f}" if j else f"{x:8.0f}" for j, x in enumerate(row)))
    return "\n".join(shown)


def _as_text(result: Any) -> str:
    rules = f"current rule: {result.rule.rule or 'not known'}; for constant entropy: {result.suggestion}"
    heads = f"collapsed heads: {len(result.collapsed())}, blurred heads: {len(result.blurred())}"
    return "\n".join([_table(result), rules, heads])


def _bases_as_text(bases: Any) -> str:
    """Returns a table of mean entropy by length under each rule, and the share of heads that it keeps."""
    lines = [" ".join(f"{n:>7}" for n in bases.lengths) + "  kept  rule"]
    for rule, entropy in bases.entropy.items():
        means = " ".join(f"{x:7.3f}" for x in entropy.nanmean((1, 2)).tolist())
        lines.append(f"{means} {100 * bases.kept(rule):4.0f}%  {rule}")
    lines.append(f"base of all heads: {bases.base_of_all:.4g}")
    for what, numbers in {"base": bases.base, "line": bases.line}.items():
        known = numbers[~numbers.isnan()]
        quartiles = known.quantile(known.new_tensor([0.25, 0.5, 0.75])).tolist() if len(known) else []
        text = " ".join(f"{x:.4g}" for x in quartiles)
        lines.append(f"{what} of a head, quartiles over {len(known)} of {numbers.numel()}: {text}")
    return "\n".join(lines)


def _inspect(options: argparse.Namespace) -> None:
    from isentrope.models.bases import bases
    from isentrope.models.inspect import inspect

    if options.bases and options.output is not None:
        raise ValueError("[inspect] --output must not be given with --bases, which have no report; got both")
    outputs = Outputs(options.json, page=options.output)
    text = read_text(options.text)
    model, tokenizer, causal = load(options.model, "inspect")
    length = min(options.max_length, getattr(model.config, "max_position_embeddings", None) or options.max_length)
    texts = tokenised(tokenizer, text, options.texts, length)
    names = {"model": name_of(options.model), "text": name_of(options.text)}
    if options.bases:
        result: Any = bases(model, texts, progress=progress_of("inspect"))
        readable = _bases_as_text(result)
    else:
        progress = functools.partial(progress_of("inspect"), "text")
        result = inspect(model, readings(texts, length, causal), max_length=length, progress=progress)
        readable = _as_text(result)
    outputs.write(result.to_dict() | names, readable)


main = command("inspect", _parser, _inspect, __name__)
