"""Measures the gain that restores the entropy of a model with stretched RoPE.

Stretching RoPE blurs the heads, and a constant gain sharpens them. Its size follows from the model itself: the derivative
of a row's entropy with respect to the logarithm of its scale is minus the variance of its logits, without soft-cap and bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from isentrope import hf
from isentrope._core.values import check_choice, check_count, shown
from isentrope.hf.calibrated import LayerRules, set_rules
from isentrope.hf.calibrated import apply as apply
from isentrope.hf.rope import Stretch, parse, stretched, trained_length, yarn_attention_factor
from isentrope.models.arguments import check_no_rule, check_progress, check_texts, check_words, checked_list
from isentrope.models.evaluate import (
    BLOCK, Difference, Method, Results, beats, check_passages, compare, evaluate,
)  # fmt: skip
from isentrope.models.heads import for_json, kinds, slopes
from isentrope.models.inspect import recorded
from isentrope.models.results import check_results
from isentrope.rules import ScaleRule
from isentrope.statistics import Statistics

SCOPES = ("model", "layer", "head")
# No gain measured so far exceeds 0.3. Steps of at most a quarter keep Newton's method within its linear range.
LARGEST_STEP = 0.25
# A head whose logits hardly vary has no meaningful gain: its step would divide noise by almost 0.
LEAST_VARIANCE = 1e-3


@dataclass(frozen=True)
class Entropies:
    """Means over blocks of rows, float64 [blocks of all texts, layers, heads]."""

    entropy: Tensor
    variance: Tensor
    reach: Tensor
    """Mean attended distance as a share of the largest that a row's keys allow."""
    log_n: Tensor
    """Mean ln n of a block's rows; n is the number of keys that a row sees."""


@dataclass(frozen=True)
class Calibration:
    """Result of `calibrate`."""

    rope: Stretch
    trained: int
    """Tokens the model was trained on."""
    per: str
    log_gain: float
    """Mean over layers and heads, natural logarithm; 0 where nothing was kept."""
    log_gains: Tensor
    """Measured gains, kept or not, float64 [layers, heads]."""
    kept: bool
    """Whether the rule has the gain: it was better than none on held-out passages by a t test, or there were no passages."""
    steps: list[dict[str, float]]
    """One dict for each Newton step: mean log gain, mean difference in entropy and its standard error."""
    before: Tensor
    stretched: Tensor
    calibrated: Tensor
    """Mean entropy, float64 [layers, heads]."""
    slope: Tensor
    """dH / d ln n without the stretch, float64 [layers, heads]; NaN where all blocks have one n."""
    reach: Tensor
    """Mean attended distance as a share of the keys there are, without the stretch, float64 [layers, heads]."""
    nll: list[Difference]

    @property
    def rules(self) -> LayerRules:
        """Rule `scaled(gain=...)`: a single one, or one for each layer. `standard` if no gain was kept."""
        return rules_of(self.log_gains) if self.kept else [ScaleRule()]

    def to_dict(self) -> dict[str, Any]:
        """Returns the document for `isentrope.hf.apply` and `isentrope report`."""
        return {
            "kind": "calibration", "version": 1, "rope": {"text": self.rope.text, "parameters": self.rope.parameters},
            "trained_length": self.trained, "per": self.per, "log_gain": self.log_gain,
            "measured_log_gains": self.log_gains.tolist(), "kept": self.kept,
            "rule": self.rules[0].text if len(self.rules) == 1 else [rule.text for rule in self.rules],
            "steps": self.steps,
            "entropy": {name: getattr(self, name).tolist() for name in ("before", "stretched", "calibrated")},
            "heads": {"slope": for_json(self.slope), "reach": for_json(self.reach), "kind": kinds(self.reach)},
            "nll": [difference.to_dict() for difference in self.nll],
        }  # fmt: skip


def rules_of(log_gains: Tensor) -> LayerRules:
    """Returns `scaled` with the gains [layers, heads], with as few numbers as possible."""

    def rule(gains: Tensor) -> ScaleRule:
        rounded = [round(gain, 6) for gain in gains.exp().tolist()]
        return ScaleRule.scaled(rounded[0] if len(set(rounded)) == 1 else rounded)

    by_layer = [rule(gains) for gains in log_gains]
    return by_layer[:1] if len(set(by_layer)) == 1 else by_layer


@torch.no_grad()
def entropies(model: nn.Module, texts: Sequence[Tensor]) -> Entropies:
    """Returns entropy and variance of every head over blocks of rows of every text. The model must use isentrope.

    Raises ValueError if the model computes NaN.
    """
    layers = {id(module): index for index, module in enumerate(hf.attentions(model))}
    by_field: dict[str, list[Tensor]] = {field.name: [] for field in fields(Entropies)}
    for tokens in texts:
        records = recorded("calibrate", model, tokens, ("entropy", "variance", "distance", "support"))
        of_layer = sorted(records, key=lambda record: layers[id(record.module)])
        for name, columns in by_field.items():
            values = torch.stack([_of_rows(name, record.statistics)[0] for record in of_layer]).double().cpu()
            columns.extend(block.mean(-1) for block in values.split(BLOCK, dim=-1))
    return Entropies(**{name: torch.stack(columns) for name, columns in by_field.items()})


def _of_rows(name: str, statistics: Statistics) -> Tensor:
    if name == "log_n":
        return statistics.support.double().log()
    if name == "reach":
        return statistics.distance / (statistics.support - 1).clamp(min=1)
    return getattr(statistics, name)


def pooled(values: Tensor, per: str) -> Tensor:
    """Returns means [blocks, layers, heads] over heads that share a gain."""
    if per == "head":
        return values
    axes = (1, 2) if per == "model" else (2,)
    return values.mean(axes, keepdim=True).expand_as(values)


def newton_step(wanted: Tensor, now: Entropies, per: str) -> Tensor:
    """Returns the necessary increase of ln lambda, float64 [layers, heads]: dH / d ln lambda = -Var, without soft-cap and bias."""
    gap = pooled(now.entropy - wanted, per).mean(0)
    variance = pooled(now.variance, per).mean(0)
    step = torch.where(variance > LEAST_VARIANCE, gap / variance.clamp(min=LEAST_VARIANCE), 0)
    return step.clamp(-LARGEST_STEP, LARGEST_STEP)


def solve(
    model: nn.Module, texts: Sequence[Tensor], wanted: Tensor, per: str, most_steps: int,
    progress: Callable[[str, int, int], None] | None = None,
) -> tuple[Tensor, list[dict[str, float]], Entropies, Entropies]:  # fmt: skip
    """Returns log gains [layers, heads], the findings of each step, and the entropies without and with the gains.

    Stops when the mean difference is below its own standard error over blocks.
    """
    log_gains = torch.zeros(wanted.shape[1:], dtype=torch.float64)
    set_rules(model, None)
    first = now = entropies(model, texts)
    steps = []
    for step in range(most_steps + 1):
        gap = (now.entropy - wanted).mean((1, 2))
        error = (gap.std() / math.sqrt(gap.numel())).item() if gap.numel() > 1 else 0.0
        steps.append({"log_gain": log_gains.mean().item(), "difference": gap.mean().item(), "se": error})
        if progress is not None:
            progress("newton", step, most_steps)
        if step == most_steps or (step > 0 and abs(gap.mean().item()) < error):
            break
        log_gains = log_gains + newton_step(wanted, now, per)
        set_rules(model, rules_of(log_gains))
        now = entropies(model, texts)
    return log_gains, steps, first, now


def calibrate(
    model: nn.Module, texts: Sequence[Tensor], *, rope: str | Stretch, per: str = "model", passages: Sequence[Tensor] = (),
    lengths: Sequence[int] = (), most_steps: int = 3, results: Results | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Calibration:  # fmt: skip
    """Measures the gain that gives the stretched model the entropy of the unstretched one.

    model: a causal transformers model with RoPE; not changed.
    texts: int64 [tokens], ordinary text within the trained length.
    rope: the stretch, as for `isentrope.hf.rope.parse`.
    per: "model" for one gain, "layer" or "head" for one each. A gain is kept only if it is better than none, by a
        one-sided t test over the passages at 5 %. Several gains are kept only if they are better than one.
    passages, lengths: as for `isentrope.models.evaluate.evaluate`, from held-out text; the part beyond the trained
        length decides. Without passages there is no test, and the measured gain is kept.

    Raises ValueError if an argument is invalid, or if the model already stretches RoPE, has a rule that was set, or cannot
    use isentrope's attention; TypeError for arguments of the wrong type.
    """
    check_count("calibrate", "most_steps", most_steps, 0)
    check_results("calibrate", results)
    check_progress("calibrate", progress)
    stretch = parse(rope) if isinstance(rope, str) else rope
    _check(model, texts, stretch, per)
    checked_list("calibrate", "passages", passages, "tensors")
    trained = trained_length(model)
    if len(passages):
        check_passages(passages, lengths)
        longest = lengths[-1]
        if longest < _first_beyond(trained, lengths) + BLOCK:
            raise ValueError(f"[calibrate] lengths must reach beyond the trained {trained} by {BLOCK}; got {list(lengths)}")
    else:
        longest = max(trained + 1, int(trained * stretch.factor))
    with hf.reading(model):
        unstretched = entropies(model, texts)
        wanted = unstretched.entropy
        with stretched(model, stretch, at_length=longest):
            several = solve(model, texts, wanted, per, most_steps, progress)
            one = several if per == "model" else solve(model, texts, wanted, "model", most_steps)
            set_rules(model, None)
    calibration, single = (
        Calibration(
            stretch, trained, scope, log_gains.mean().item(), log_gains, True, steps,
            wanted.mean(0), first.entropy.mean(0), now.entropy.mean(0), slopes(wanted, unstretched.log_n),
            unstretched.reach.mean(0), [],
        )
        for scope, (log_gains, steps, first, now) in ((per, several), ("model", one))
    )  # fmt: skip
    return _with_verdict(model, calibration, single, passages, lengths, results, progress) if passages else calibration


def _check(model: nn.Module, texts: Sequence[Tensor], stretch: Stretch, per: str) -> None:
    check_texts("calibrate", "texts", texts)
    if not isinstance(stretch, Stretch):
        raise TypeError(f"[calibrate] rope must be a text or a Stretch; got {shown(stretch)}")
    check_choice("calibrate", "per", per, SCOPES)
    if stretch.kind == "none":
        raise ValueError("[calibrate] rope must be a stretch, such as yarn:4; got none")
    longest = max((text.numel() for text in texts), default=0)
    if longest < BLOCK:
        raise ValueError(f"[calibrate] texts must contain one of at least {BLOCK} tokens; got {longest}")
    check_words("calibrate", "texts", texts, model)
    check_no_rule("calibrate", model)
    if longest > trained_length(model):
        raise ValueError(
            f"[calibrate] texts must be no longer than the {trained_length(model)} tokens the model was trained on; "
            f"got {longest}"
        )


def methods_of(calibration: Calibration, single: Calibration) -> list[Method]:
    """Returns the methods: no gain, one gain, all gains if there are several, and YaRN's own."""
    methods = [Method("no gain", calibration.rope), Method("one gain", calibration.rope, single.rules)]
    if calibration.per != "model":
        methods.append(Method(f"a gain per {calibration.per}", calibration.rope, calibration.rules))
    if calibration.rope.kind == "yarn":
        published = yarn_attention_factor(calibration.rope.factor) ** 2
        methods.append(Method("YaRN's own gain", calibration.rope, [ScaleRule.scaled(round(published, 6))]))
    return methods


def _with_verdict(
    model: nn.Module, calibration: Calibration, single: Calibration, passages: Sequence[Tensor], lengths: Sequence[int],
    results: Results | None, progress: Callable[[str, int, int], None] | None,
) -> Calibration:  # fmt: skip
    """Keeps a gain only if it lowers the loss of held-out passages beyond the trained length."""
    methods = methods_of(calibration, single)
    results = Results(None, {}) if results is None else results
    nll = evaluate(model, passages, methods, lengths=lengths, results=results, progress=progress)
    beyond = [_first_beyond(calibration.trained, lengths), lengths[-1]]

    def better(method: Method, than: Method) -> bool:
        return beats(compare(results, [than, method], len(passages), beyond)[-1])

    none, one, *rest = methods
    kept = better(one, none)
    best = calibration if kept and calibration.per != "model" and better(rest[0], one) else single
    return replace(best, kept=kept, log_gain=best.log_gain if kept else 0.0, nll=nll)


def _first_beyond(trained: int, lengths: Sequence[int]) -> int:
    """Returns the first position that decides: the first whole block beyond the trained length, or the first bin."""
    return max(-(-trained // BLOCK) * BLOCK, lengths[0])
