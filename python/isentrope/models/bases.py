"""Finds the law of n that keeps the entropy of a head constant: fitted to the head's scores, evaluated on held-out texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from isentrope import hf
from isentrope.functions import attention
from isentrope.hf.recording import observing
from isentrope.hf.register import layer_type
from isentrope.models.arguments import check_no_rule, check_progress, check_texts, check_words
from isentrope.models.heads import for_json, slopes
from isentrope.rules import ScaleRule

# A length n stands for the rows that see n - 31 ... n keys, which are similar from the shortest length on.
ROWS, SHORTEST = 32, 64
# Candidates of 1 / ln B, from a base of 1e9 to 1.5, each a sixth above the previous one.
TRIED = [0.048 * 1.17**i for i in range(26)]
# Candidate slopes of 1 + a ln(n / middle): the scale is the model's own at the middle length, and positive at all.
LINES = [-0.2 + 0.05 * i for i in range(14)]
KEPT = 0.25  # largest change of a head's entropy over all lengths, in nats, that counts as kept


class _Rows(NamedTuple):
    """Queries [1, heads, ROWS, dim] by length and keys [1, kv_heads, tokens, dim] of a layer's rows at some lengths."""

    queries: dict[int, Tensor]
    keys: Tensor
    options: dict[str, Any]


@dataclass(frozen=True)
class Bases:
    """Result of `bases`. `layers` has the indices of the layers included, which are those whose rows see all earlier keys."""

    layers: list[int]
    lengths: list[int]
    base: Tensor
    """Base of each head, float64 [layers, heads]. NaN where no base that was tried keeps its entropy constant."""
    base_of_all: float
    """Base that keeps the mean entropy over heads constant. NaN if none that was tried does."""
    line: Tensor
    """Slope a of each head, float64 [layers, heads]: 1 + a ln(n / middle) times the model's scale keeps its entropy
    constant. NaN as for `base`."""
    entropy: dict[str, Tensor]
    """Entropy on the held-out texts in nats, float64 [lengths, layers, heads], by the name of the rule: "standard",
    "base 512", "one base", "a base per head", "a line per head"."""
    texts: int
    """Number of texts used for fitting; as many, or one fewer, are held out."""

    def kept(self, rule: str) -> float:
        """Returns the share of heads whose entropy at any length is within `KEPT` nats of that at the first length."""
        change = (self.entropy[rule] - self.entropy[rule][0]).abs().amax(0)
        return (change < KEPT).double().mean().item()

    def to_dict(self) -> dict[str, Any]:
        """Returns plain lists and numbers, with NaN as None."""
        return {
            "kind": "bases", "version": 1, "layers": self.layers, "lengths": self.lengths, "texts": self.texts,
            "base": for_json(self.base), "line": for_json(self.line), "base_of_all": for_json(torch.tensor(self.base_of_all)),
            "kept": {rule: self.kept(rule) for rule in self.entropy},
            "entropy": {rule: for_json((found * 1e4).round() / 1e4) for rule, found in self.entropy.items()},
        }  # fmt: skip


@torch.no_grad()
def bases(
    model: nn.Module, texts: Sequence[Tensor], *, progress: Callable[[str, int, int], None] | None = None
) -> Bases:
    """Finds the base, and the line in ln n, with which each head keeps the entropy of its rows as they grow longer, if any.

    The model reads the texts unchanged. From the queries and keys of each head, entropies are computed under ln n / ln B
    for many B, at n = 64, 128, ... up to the shortest text. The base of a head is the largest at which the slope of the
    entropy in ln n, by least squares over these lengths, is 0. A line also has one number, but keeps the scale of the
    middle length. Every other text is for the fit, the rest are for the evaluation.

    model: a causal transformers model; not changed.
    texts: at least two, int64 [tokens], of at least 128 tokens.

    Raises ValueError if texts are too few or too short, or if no layer has rows that see all earlier keys. Raises it for a
    model with a rule that was set, and TypeError if texts are not a list of such tensors.
    """
    check_progress("bases", progress)
    check_texts("bases", "texts", texts)
    shortest = min((text.numel() for text in texts), default=0)
    if len(texts) < 2 or shortest < 2 * SHORTEST:
        raise ValueError(f"[bases] texts must be at least 2, of {2 * SHORTEST} tokens each; got {len(texts)}, of {shortest}")
    check_words("bases", "texts", texts, model)
    check_no_rule("bases", model)
    lengths = [SHORTEST << i for i in range((shortest // SHORTEST).bit_length())]
    rows = [_rows_of(model, text, lengths) for text in texts]
    layers = sorted(rows[0])
    middle = lengths[len(lengths) // 2]
    base_slopes, line_slopes, held_out = [], [], []
    for done, layer in enumerate(layers):
        fitting, showing = ([text[layer] for text in rows[start::2]] for start in (0, 1))
        base_slopes.append(_slopes(fitting, [_log_rule(c) for c in TRIED], lengths))
        line_slopes.append(_slopes(fitting, [_line_rule(a, middle) for a in LINES], lengths))
        held_out.append(showing)
        if progress is not None:
            progress("layer", done + 1, len(layers))
    slope, log_c = torch.stack(base_slopes, 1), torch.tensor(TRIED, dtype=torch.float64).log()
    per_head = _crossing(slope, log_c).exp()
    common = _crossing(slope.mean((1, 2), keepdim=True), log_c).exp()
    line = _crossing(torch.stack(line_slopes, 1), torch.tensor(LINES, dtype=torch.float64))
    published = torch.full_like(per_head, 1 / math.log(512))
    entropy = {
        "standard": torch.stack([_entropy(layer, ScaleRule()) for layer in held_out], 1),
        "base 512": _entropies_under(held_out, published, _log_rule),
        "one base": _entropies_under(held_out, common.expand_as(per_head), _log_rule),
        "a base per head": _entropies_under(held_out, per_head, _log_rule),
        "a line per head": _entropies_under(held_out, line, lambda a: _line_rule(a, middle)),
    }
    base_of_all = (1 / common).exp().item()
    return Bases(layers, lengths, (1 / per_head).exp(), base_of_all, line, entropy, len(rows[::2]))


def _log_rule(c: float | list[float]) -> ScaleRule:
    """Returns the rule c ln n, with c = 1 / ln B."""
    return ScaleRule.ssmax(c, [0.0] * len(c) if isinstance(c, list) else 0.0)


def _line_rule(a: float | list[float], middle: int) -> ScaleRule:
    """Returns the rule 1 + a ln(n / middle)."""
    offset = [1 - x * math.log(middle) for x in (a if isinstance(a, list) else [a])]
    return ScaleRule.ssmax(a, offset if isinstance(a, list) else offset[0])


def _rows_of(model: nn.Module, text: Tensor, lengths: list[int]) -> dict[int, _Rows]:
    """Returns the rows by layer, for layers whose rows see all earlier keys."""
    rows_by_layer: dict[int, _Rows] = {}

    def keep(record: hf.Record, query: Tensor, key: Tensor, options: dict[str, Any]) -> None:
        module = record.module
        seen = record.statistics.support[0]
        whole = torch.equal(seen, torch.arange(1, lengths[-1] + 1, device=seen.device).expand_as(seen))
        if whole and layer_type(module) in (None, "full_attention"):
            queries = {n: query[:, :, n - ROWS : n].clone() for n in lengths}
            scaling = {name: options[name] for name in ("scale", "soft_cap", "sinks")}
            rows_by_layer[layers[id(module)]] = _Rows(queries, key[:, :, : lengths[-1]], scaling)

    with hf.reading(model), observing(keep, "support"):
        layers = {id(module): index for index, module in enumerate(hf.attentions(model))}
        model.base_model(input_ids=text[None, : lengths[-1]].to(model.device), use_cache=False)
    if not rows_by_layer:
        raise ValueError("[bases] the model must have causal layers without a window; got none")
    return rows_by_layer


def _entropy(texts: list[_Rows], rule: ScaleRule) -> Tensor:
    """Returns the mean entropy over texts and rows, float64 [lengths, heads]."""

    def mean(text: _Rows, n: int) -> Tensor:
        q, keys = text.queries[n], text.keys[:, :, :n]
        _, found = attention(q, keys, keys[..., :1], rule=rule, causal=True, return_stats=("entropy",), **text.options)
        return found.entropy[0].double().mean(-1)

    return torch.stack([torch.stack([mean(text, n) for n in text.queries]) for text in texts]).mean(0)


def _slopes(texts: list[_Rows], rules: list[ScaleRule], lengths: list[int]) -> Tensor:
    """Returns dH / d ln n under each rule, float64 [rules, heads]."""
    entropy = torch.stack([_entropy(texts, rule) for rule in rules])
    log_n = torch.tensor(lengths, dtype=torch.float64).log()[:, None, None]
    return slopes(entropy.transpose(0, 1), log_n)


def _crossing(slope: Tensor, tried: Tensor) -> Tensor:
    """Returns the first number at which the slope [tried, ...] falls to 0, interpolated; NaN if there is none."""
    falls = (slope[:-1] > 0) & (slope[1:] <= 0)
    index = falls.double().argmax(0, keepdim=True)
    above, below = slope.gather(0, index), slope.gather(0, index + 1)
    share = (above / (above - below)).squeeze(0)
    index = index.squeeze(0)
    return torch.where(falls.any(0), tried[index] + share * (tried[index + 1] - tried[index]), torch.nan)


def _entropies_under(texts: list[list[_Rows]], numbers: Tensor, law: Callable[[list[float]], ScaleRule]) -> Tensor:
    """Returns entropies [lengths, layers, heads] under a law with a number for each head; NaN for NaN."""

    def of_layer(numbers_of_layer: Tensor, layer: list[_Rows]) -> Tensor:
        known = numbers_of_layer.nan_to_num(0.1)  # a valid number for rows whose result is dropped
        return torch.where(numbers_of_layer.isnan(), torch.nan, _entropy(layer, law(known.tolist())))

    return torch.stack([of_layer(own, layer) for own, layer in zip(numbers, texts)], 1)
