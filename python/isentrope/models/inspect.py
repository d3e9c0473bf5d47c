"""Measures the attention of a model as rows grow longer: the entropy of every layer and head against n."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from isentrope import hf
from isentrope._core.values import check_count, shown
from isentrope.hf.rules import RULE
from isentrope.models.arguments import check_progress, check_tokens, check_words, checked_list
from isentrope.models.heads import for_json, padded, where
from isentrope.rules import ScaleRule
from isentrope.statistics import Statistics

QUANTITIES = ("entropy", "effective_keys", "max_logit", "gradient_mass", "variance", "distance")
_WANTED = ("entropy", "collision", "variance", "distance", "max_logit", "lambda_", "support", "received")
# A head collapses below this entropy, in nats, and blurs above this fraction of its maximum ln n.
COLLAPSED, BLURRED = 0.05, 0.95


@dataclass(frozen=True)
class Inspection:
    """Result of `inspect`. Bin i holds the rows that see edges[i] <= n < edges[i + 1] keys.

    `mean[name]` and `spread[name]` are float64 [layers, heads, bins], for each name of `QUANTITIES`: the mean over
    texts of each text's mean, and its standard deviation over texts (NaN for a single one).
    """

    model: str
    rule: hf.ModelRule
    """The model's own, times the rule that is set; without a rule where layers have different ones."""
    texts: int
    tokens: int
    edges: list[int]
    n: list[float]
    """Mean n of each bin."""
    n_of_head: Tensor
    """The same of each head, float64 [layers, heads, bins]: with a window, NaN beyond it."""
    mean: dict[str, Tensor]
    spread: dict[str, Tensor]
    sink: Tensor
    """Share of the weight that the first key gets from the rows, float64 [layers, heads]: its mean over texts."""
    positions: list[float]
    """Mean position of the keys of each bin of `received`, from 1: bin i holds those in 2^(i-1) + 1 ... 2^i that
    the longest text has."""
    received: Tensor
    """Weight that a key receives from a whole text, float64 [layers, heads, positions]: the mean over texts of each text's
    mean over keys."""
    suggestion: ScaleRule | None
    """The rule whose entropy would stay where it is at the longest rows; None with fewer than two bins. It is of the heads
    with rows in the last bin."""

    def collapsed(self) -> list[tuple[int, int]]:
        """Returns (layer, head) of heads whose entropy at the longest rows is near 0."""
        return where(self._longest()[0] < COLLAPSED)

    def blurred(self) -> list[tuple[int, int]]:
        """Returns (layer, head) of heads whose entropy at the longest rows is near ln n: they average over all keys."""
        entropy, n = self._longest()
        return where(entropy > BLURRED * n.log())

    def _longest(self) -> tuple[Tensor, Tensor]:
        """Returns the entropy of each head's longest rows and their mean n; with a window not in the last bin."""
        entropy = self.mean["entropy"]
        last = torch.where(entropy.isnan(), 0, torch.arange(entropy.shape[-1])).amax(-1, keepdim=True)
        return entropy.gather(-1, last).squeeze(-1), self.n_of_head.gather(-1, last).squeeze(-1)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain lists and numbers, with NaN as None, for `isentrope report`."""
        summary = {name: getattr(self, name) for name in ("model", "texts", "tokens", "edges", "n")}
        return {"kind": "inspection", "version": 2} | summary | {
            "rule": self.rule._asdict() | {"rule": self.rule.rule and self.rule.rule.text},
            "n_of_head": for_json(self.n_of_head),
            "mean": {name: for_json(x) for name, x in self.mean.items()},
            "spread": {name: for_json(x) for name, x in self.spread.items()},
            "sink": for_json(self.sink),
            "received": {"positions": self.positions, "mean": for_json(self.received)},
            "collapsed": self.collapsed(),
            "blurred": self.blurred(),
            "suggestion": None if self.suggestion is None else self.suggestion.text,
        }


def inspect(
    model: nn.Module, texts: Sequence[str] | Sequence[Tensor], *, tokenizer: Any = None, max_length: int = 4096,
    progress: Callable[[int, int], None] | None = None,
) -> Inspection:  # fmt: skip
    """Runs texts through a transformers model, one at a time, and measures how focused each head is at each n.

    model: any model whose attention can be replaced; its own attention is restored at the end.
    texts: a list of strings, which needs a tokenizer, or of int64 tensors [tokens] on any device. Each is cut at
        max_length.
    progress: called with (texts done, texts) after each text.

    Memory grows with layers x heads x tokens of one text, not with tokens squared, if each row of the model's masks sees
    one interval of keys. Causal masks, sliding windows and chunks do.

    Raises ValueError if no text has two tokens, if a token is not in the model's vocabulary, or if strings are passed
    without a tokenizer. Raises it too if the model cannot use isentrope's attention or computes NaN. Raises TypeError
    for arguments of the wrong type, such as a single text that is not in a list.
    """
    check_count("inspect", "max_length", max_length, 2)
    check_progress("inspect", progress)
    sequences = [_tokens(text, tokenizer) for text in checked_list("inspect", "texts", texts, "texts")]
    for tokens in sequences:
        check_tokens("inspect", "texts", tokens)
    check_words("inspect", "texts", sequences, model)
    sequences = [x[:max_length] for x in sequences]
    sequences = [x for x in sequences if x.numel() >= 2]
    if not sequences:
        raise ValueError("[inspect] texts must contain one of at least 2 tokens; got none")
    top = max(x.numel() for x in sequences)
    # Bins double in length, and the rows of a text of 2^i tokens fill the last one.
    edges = [1] + [(1 << i) + 1 for i in range((top - 1).bit_length() + 1)]
    by_text = []
    with hf.reading(model):
        rule = _rule_in_use(model)
        for done, tokens in enumerate(sequences):
            # Layers are the calls in their order, because a module may serve as several layers.
            records = recorded("inspect", model, tokens, _WANTED)
            by_text.append(_binned(records, edges) | _received(records))
            if progress is not None:
                progress(done + 1, len(sequences))
    return _summary(model, rule, sequences, edges, by_text)


def _tokens(text: str | Tensor, tokenizer: Any) -> Tensor:
    if isinstance(text, Tensor):
        return text
    if tokenizer is None:
        raise ValueError("[inspect] tokenizer must be given with texts that are strings; got None")
    if not isinstance(text, str):
        raise TypeError(f"[inspect] texts must be strings or tensors; got {shown(text)}")
    try:
        return tokenizer(text, return_tensors="pt")["input_ids"][0]
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise TypeError(
            f"[inspect] tokenizer must give input_ids as those of transformers do; got {shown(tokenizer)}"
        ) from error


@torch.no_grad()
def recorded(function: str, model: nn.Module, tokens: Tensor, wanted: Sequence[str]) -> list[hf.Record]:
    """Returns statistics of every attention that reads `tokens`, entropy among them.

    Raises ValueError, in the name of `function`, if there is none or the model computes NaN.
    """
    # Without the head, whose logits for a whole vocabulary would take most of the memory.
    options = {} if not getattr(model.config, "use_cache", False) else {"use_cache": False}
    with hf.record(*wanted) as records:
        model.base_model(input_ids=tokens[None].to(model.device), **options)
    if not records:
        raise ValueError(f"[{function}] the model must call the attention of its attn_implementation; got a model that did not")
    for call, (_, statistics) in enumerate(records):
        if statistics.entropy.isnan().any():
            raise ValueError(
                f"[{function}] the model's attention must be finite; got NaN in call {call + 1} of {len(records)}"
            )
    return records


def _binned(records: Iterable[hf.Record], edges: list[int]) -> dict[str, Tensor]:
    """Returns the means of one text, float64 [layers, heads, bins], NaN for bins without rows."""
    by_quantity: dict[str, list[Tensor]] = {name: [] for name in (*QUANTITIES, "n")}
    limits = torch.tensor(edges[1:-1])
    for _, s in records:
        s = Statistics(*(None if x is None else x.cpu() for x in s))
        index = torch.bucketize(s.support[0], limits, right=True)
        count = torch.zeros(index.shape[0], len(edges) - 1, dtype=torch.float64)
        count.scatter_add_(1, index, (s.support[0] > 0).double())
        for name in by_quantity:
            values = s.support.float() if name == "n" else getattr(s, name)
            total = torch.zeros_like(count).scatter_add_(1, index, torch.where(s.support > 0, values, 0)[0].double())
            by_quantity[name].append(total / count)
    return {name: torch.stack(column) for name, column in by_quantity.items()}


def _received(records: Iterable[hf.Record]) -> dict[str, Tensor]:
    """Returns one text's share of the first key [layers, heads], and weights by position [layers, heads, bins]."""
    sinks, by_position = [], []
    for record in records:
        weights, rows = record.received[0].double().cpu(), (record.statistics.support[0] > 0).sum(-1).cpu()
        bins = torch.arange(1, weights.shape[1] + 1).double().log2().ceil().long()
        count = torch.bincount(bins).double()
        total = torch.zeros(len(weights), len(count), dtype=torch.float64).index_add_(1, bins, weights)
        sinks.append(weights[:, 0] / rows)
        by_position.append(total / count)
    return {"sink": torch.stack(sinks), "received": padded(by_position)}


def _rule_in_use(model: nn.Module) -> hf.ModelRule:
    """Returns the model's own rule, times the one that is set; None as the rule if layers have different ones."""
    own = hf.model_rule(model)
    first, *others = {str(getattr(module, RULE, "standard")) for module in hf.attentions(model)}
    if own.rule is None or (first == "standard" and not others):
        return own
    return own._replace(rule=None if others or own.layers != "all" else ScaleRule(f"{own.rule} * {first}"))


def _summary(
    model: nn.Module, rule: hf.ModelRule, sequences: list[Tensor], edges: list[int], by_text: list[dict]
) -> Inspection:
    n_of_head = torch.stack([x["n"] for x in by_text]).nanmean(0)
    n = n_of_head.nanmean((0, 1)).tolist()
    filled = [i for i, value in enumerate(n) if not math.isnan(value)]
    mean, spread = {}, {}
    for name in QUANTITIES:
        values = torch.stack([x[name] for x in by_text])[..., filled]
        mean[name] = values.nanmean(0)
        count = (~values.isnan()).sum(0)
        squares = (values - mean[name]).square().nansum(0)
        spread[name] = torch.where(count > 1, (squares / (count - 1)).sqrt(), torch.nan)
    n = [n[i] for i in filled]
    received = padded([x["received"] for x in by_text]).nanmean(0)
    longest = max(x.numel() for x in sequences)
    return Inspection(
        model=getattr(model.config, "_name_or_path", "") or type(model).__name__,
        rule=rule,
        texts=len(sequences),
        tokens=sum(x.numel() for x in sequences),
        edges=[edges[i] for i in filled] + [edges[filled[-1] + 1]],
        n=n,
        n_of_head=n_of_head[..., filled],
        mean=mean,
        spread=spread,
        sink=torch.stack([x["sink"] for x in by_text]).nanmean(0),
        positions=[1.0] + [((1 << i) + 1 + min(2 << i, longest)) / 2 for i in range(received.shape[-1] - 1)],
        received=received,
        suggestion=_suggestion(over_heads(mean | {"n": n_of_head[..., filled]})),
    )


def over_heads(mean: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns means [bins] over the heads that have rows in the last bin, which excludes those with a window: a mean over
    other heads in each bin would change with them."""
    longest = ~mean["entropy"][..., -1].isnan()
    return {name: x[longest].nanmean(0) for name, x in mean.items()}


def _suggestion(means: dict[str, Tensor]) -> ScaleRule | None:
    """Returns the line in ln n that keeps the entropy of the longest rows.

    From dH / d ln lambda = -variance, one Newton step in ln lambda takes the entropy H(n) to that of the longest rows.
    Soft-cap and bias, with which that derivative is another, are not taken into account. Entropy and variance are averaged
    over heads first, because a head without variance has no step. The factors, fitted by least squares over the bins of
    at least 8 keys, give an ssmax rule.
    """
    n, entropy, variance = means["n"], means["entropy"], means["variance"]
    factor = ((entropy - entropy[-1]) / variance.clamp(min=1e-6)).clamp(-1, 1).exp()
    long_enough = n >= 8
    if long_enough.sum() < 2:
        return None
    x = n.log()[long_enough]
    lines = torch.stack([x, torch.ones_like(x)], 1)
    slope, offset = torch.linalg.lstsq(lines, factor[long_enough, None]).solution[:, 0].tolist()
    return ScaleRule.ssmax(s=round(slope, 4), b=round(offset, 4))
