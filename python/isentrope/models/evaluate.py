"""Measures how well a model reads long text: its loss by position, and whether it retrieves facts from far back.

A model reads the same passages with each way of stretching and scaling it, so that the differences are paired.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from isentrope import hf
from isentrope._core.values import check_count, is_integer, shown
from isentrope.hf.calibrated import LayerRules, set_rules
from isentrope.hf.rope import NO_STRETCH, Stretch, stretched
from isentrope.models.arguments import check_progress, check_texts, check_tokens, check_words, checked_list
from isentrope.models.results import Results, check_results
from isentrope.models.student import one_sided_p, quantile
from isentrope.rules import ScaleRule

# Positions whose losses are averaged: tokens nearby are correlated, so errors over single ones would be too small.
BLOCK = 256
LEAST_PASSAGES = 3  # an interval with one degree of freedom is uninformative


@dataclass(frozen=True)
class Method:
    """A way to run the model. `rules` replace the growth of its softmax scale, as `hf.set_rule` does."""

    name: str
    rope: Stretch = NO_STRETCH
    rules: LayerRules = field(default_factory=lambda: [ScaleRule()])


@dataclass(frozen=True)
class Difference:
    """Mean loss of a method over a bin of positions, in nats a token, and its difference from the first method's.

    Negative differences are better. `se` is the standard error of the difference over blocks of `BLOCK` positions, and
    `se_passages` that over the `passages` passages; both are NaN for a single one. `interval` is the 95 % interval over
    passages by Student's t with passages - 1 degrees of freedom. It is NaN for fewer than `LEAST_PASSAGES`, or equal ones.
    """

    method: str
    first: int
    last: int
    mean: float
    difference: float
    se: float
    se_passages: float
    passages: int

    @property
    def decides(self) -> bool:
        return self.passages >= LEAST_PASSAGES and self.se_passages > 0

    @property
    def interval(self) -> tuple[float, float]:
        if not self.decides:
            return math.nan, math.nan
        reach = quantile(self.passages - 1) * self.se_passages
        return self.difference - reach, self.difference + reach

    def to_dict(self) -> dict[str, Any]:
        low, high = self.interval
        numbers = {name: getattr(self, name) for name in ("mean", "difference", "se", "se_passages")} | {"low": low, "high": high}
        where = {"method": self.method, "from": self.first, "to": self.last, "passages": self.passages}
        return where | {name: None if math.isnan(value) else value for name, value in numbers.items()}


@torch.no_grad()
def losses(model: nn.Module, tokens: Tensor, chunk: int = 1024, first: int = 1) -> Tensor:
    """Returns the loss of every token from `first` on, float32 [tokens - first], in nats.

    tokens: int64 [tokens]; the token at 0 has no loss. The prompt is processed in chunks with a cache, so that memory
    beyond the cache does not grow with the length. Logits exist for 256 positions at a time. Positions before `first`
    are not computed: for a large vocabulary they are most of the work. Raises ValueError for a non-finite loss.
    """
    from transformers import DynamicCache

    check_tokens("losses", "tokens", tokens)
    check_words("losses", "tokens", [tokens], model)
    check_count("losses", "chunk", chunk, 1)
    check_count("losses", "first", first, 1)
    if tokens.numel() < 2:
        raise ValueError(f"[losses] tokens must be at least 2; got {tokens.numel()}")
    if tokens.numel() <= first:
        raise ValueError(f"[losses] first must be one of {tokens.numel()} tokens; got {first}")
    tokens = tokens.to(model.device)
    cache = DynamicCache(config=model.config)
    memory = torch.empty(0, dtype=torch.float32, device=model.device)
    chunks = []
    for start in range(0, tokens.numel() - 1, chunk):
        inputs = tokens[start : min(start + chunk, tokens.numel() - 1)]
        output = _body(model)(input_ids=inputs[None], past_key_values=cache, use_cache=True)
        skipped = max(first - 1 - start, 0)
        if skipped >= inputs.numel():
            continue
        targets = tokens[start + 1 : start + 1 + inputs.numel()]
        for piece, target in zip(output.last_hidden_state[:, skipped:].split(BLOCK, 1), targets[skipped:].split(BLOCK)):
            output.last_hidden_state = piece
            logits = _logits(model, output, target[None])[0]
            chunks.append(_cross_entropy_within(memory.resize_(logits.shape).copy_(logits), target))
    losses = torch.cat(chunks).cpu()
    if not losses.isfinite().all():
        wrong = int((~losses.isfinite()).nonzero()[0])
        raise ValueError(f"[losses] losses of the model must be finite; got {losses[wrong].item()} for token {first + wrong}")
    return losses


def _cross_entropy_within(logits: Tensor, targets: Tensor) -> Tensor:
    """Returns the cross-entropy of each row, overwriting the logits: a copy takes a sixth of the time with 262,144 words."""
    wanted = logits.gather(1, targets[:, None]).squeeze(1)
    largest = logits.amax(1, keepdim=True)
    return logits.sub_(largest).exp_().sum(1).log_().add_(largest.squeeze(1)).sub_(wanted)


def _body(model: nn.Module) -> Any:
    """Returns the model without its head, which is not what base_model is in Llama 4."""
    from transformers import PreTrainedModel

    base = model.base_model
    return base if base is not model else next((part for part in model.children() if isinstance(part, PreTrainedModel)), model)


def _logits(model: nn.Module, output: Any, tokens: Tensor) -> Tensor:
    """Returns the logits that the model computes from this output of its layers, for as many tokens of any value.

    Many models divide, scale or cap logits outside of their head module, so their own forward runs, without its layers.
    """
    body = _body(model)
    bodies = {body, model.get_decoder()} & set(body.modules())  # some models call the decoder within their base
    kept, calls = [vars(body).get("forward") for body in bodies], []

    def forward(*_: Any, **__: Any) -> Any:
        calls.append(output)
        return output

    try:
        for body in bodies:
            body.forward = forward
        logits = model(input_ids=tokens).logits
    finally:
        for body, before in zip(bodies, kept):
            del body.forward
            if before is not None:
                body.forward = before
    if not calls:
        raise ValueError(f"[losses] the model must call its base_model or decoder; got {type(model).__name__}, which did not")
    return logits


def blocks_of(losses: Tensor) -> list[float]:
    """Returns means over whole blocks of positions."""
    whole = losses.numel() // BLOCK * BLOCK
    return losses[:whole].double().view(-1, BLOCK).mean(1).tolist()


def evaluate(
    model: nn.Module, passages: Sequence[Tensor], methods: Sequence[Method], *, lengths: Sequence[int], chunk: int = 1024,
    results: Results | None = None, progress: Callable[[str, int, int], None] | None = None,
) -> list[Difference]:  # fmt: skip
    """Measures the loss by position of every method on the same passages, and its difference from the first method's.

    model: a causal transformers model; its attention and RoPE are restored at the end, and it then has no rules.
    passages: int64 [tokens], each of at least lengths[-1] + 1 tokens.
    lengths: edges of the bins of positions, increasing, multiples of 256; a bin is [from, to). Losses before the first are
        not computed.
    progress: called with (method, passages done, passages).

    Raises ValueError if lengths or passages are invalid, and TypeError for arguments of the wrong type, such as a single
    passage that is not in a list.
    """
    _check(passages, methods, lengths)
    check_count("evaluate", "chunk", chunk, 1)
    check_results("evaluate", results)
    check_progress("evaluate", progress)
    check_words("evaluate", "passages", passages, model)
    results, blocks = Results(None, {}) if results is None else results, _blocks(lengths)
    with hf.reading(model):
        try:
            for method in methods:
                set_rules(model, method.rules)  # raises for invalid rules before the first passage is read
            for method in methods:
                missing = [i for i in range(len(passages)) if results.get(method.name, i, blocks) is None]
                if not missing:
                    continue
                with stretched(model, method.rope):
                    set_rules(model, method.rules)
                    for index in missing:
                        nll = blocks_of(losses(model, passages[index][: lengths[-1] + 1], chunk, first=lengths[0] + 1))
                        results.add(method.name, index, nll, blocks.start)
                        if progress is not None:
                            progress(method.name, index + 1, len(passages))
        finally:
            set_rules(model, None)
    return compare(results, methods, len(passages), lengths)


def _blocks(lengths: Sequence[int]) -> range:
    return range(lengths[0] // BLOCK, lengths[-1] // BLOCK)


def check_lengths(lengths: Sequence[int]) -> None:
    """Raises ValueError unless lengths are edges of bins."""
    edges = list(lengths) if isinstance(lengths, Iterable) and not isinstance(lengths, Tensor) else [None]
    if not all(is_integer(edge) for edge in edges):
        raise TypeError(f"[evaluate] lengths must be integers, such as [0, 2048, 4096]; got {shown(lengths)}")
    if len(edges) < 2 or sorted(set(edges)) != edges or edges[0] < 0 or any(edge % BLOCK for edge in edges):
        raise ValueError(f"[evaluate] lengths must be at least two increasing multiples of {BLOCK}; got {shown(edges)}")


def _check_method(method: Any) -> None:
    if not isinstance(method, Method):
        raise TypeError(f"[evaluate] methods must be a list of Method; got {shown(method)} in it")
    if not isinstance(method.name, str) or not isinstance(method.rope, Stretch):
        got = f"{shown(method.name)} and {shown(method.rope)}"
        raise TypeError(f"[evaluate] methods must have a name and a Stretch; got {got}")
    rules = checked_list("evaluate", "rules of methods", method.rules, "ScaleRule")
    if not rules or not all(isinstance(rule, ScaleRule) for rule in rules):
        raise TypeError(f"[evaluate] rules of methods must be ScaleRule, at least one; got {shown(rules)}")


def _check(passages: Sequence[Tensor], methods: Sequence[Method], lengths: Sequence[int]) -> None:
    check_passages(passages, lengths)
    for method in checked_list("evaluate", "methods", methods, "Method"):
        _check_method(method)
    if not passages or not methods:
        raise ValueError(
            f"[evaluate] there must be passages and methods; got {len(passages)} and {len(methods)}"
        )
    if len({method.name for method in methods}) < len(methods):
        raise ValueError(f"[evaluate] methods must differ in name; got {[m.name for m in methods]}")


def check_passages(passages: Sequence[Tensor], lengths: Sequence[int]) -> None:
    check_texts("evaluate", "passages", passages)
    check_lengths(lengths)
    for passage in passages:
        if passage.numel() < lengths[-1] + 1:
            raise ValueError(
                f"[evaluate] passages must have at least {lengths[-1] + 1} tokens; got one of {passage.numel()}"
            )


def compare(
    results: Results, methods: Sequence[Method], passages: int, lengths: Sequence[int]
) -> list[Difference]:
    """Returns paired differences to the first method, bin by bin."""
    differences, blocks = [], _blocks(lengths)
    for method in methods:
        of_method, first = (
            torch.tensor([results.get(name, i, blocks) for i in range(passages)], dtype=torch.float64)
            for name in (method.name, methods[0].name)
        )
        for begin, end in zip(lengths, lengths[1:]):
            part = slice(begin // BLOCK - blocks.start, end // BLOCK - blocks.start)
            gap = of_method[:, part] - first[:, part]
            differences.append(Difference(
                method.name, begin, end, of_method[:, part].mean().item(), gap.mean().item(),
                _standard_error(gap.flatten()), _standard_error(gap.mean(1)), passages,
            ))  # fmt: skip
    return differences


def _standard_error(values: Tensor) -> float:
    return (values.std() / math.sqrt(values.numel())).item() if values.numel() > 1 else math.nan


def beats(difference: Difference) -> bool:
    """Returns whether a method beats the first one by a one-sided t test over the passages at 5 %.

    False for fewer than `LEAST_PASSAGES` passages and for differences that are all equal."""
    if not difference.decides:
        return False
    return one_sided_p(-difference.difference / difference.se_passages, difference.passages - 1) < 0.05
