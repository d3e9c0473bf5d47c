"""Applies a calibration to a model: RoPE and the rules of its layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from torch import nn

from isentrope._core.files import read_text
from isentrope._core.values import check_bool, shown
from isentrope.hf.rope import Stretch, parse, stretch_rope
from isentrope.hf.rules import assign_rule, attentions
from isentrope.rules import ScaleRule

LayerRules = list[ScaleRule]
"""One rule for each layer, or a single one for all."""


def set_rules(model: nn.Module, rules: LayerRules | None) -> None:
    """Sets the rule of every layer; None removes the rules."""
    for_all = rules is None or len(rules) == 1
    for layer, rule in enumerate(rules or [None]):
        assign_rule(model, rule, None if for_all else [layer], force=True)


def apply(model: nn.Module, calibration: Any, *, always: bool = False) -> None:
    """Sets RoPE and rule of a calibration on a model that uses isentrope.

    calibration: the result of `isentrope.calibrate`, its `to_dict()`, or a file with that.
    By default both act only on inputs beyond the trained length, and shorter inputs are read as before.
    always: at every length; the stretch is then in the model's configuration.

    Raises ValueError, before anything is changed, if the model does not use isentrope or the document is not a
    calibration of such a model.
    """
    check_bool("apply", "always", always)
    found: Any = calibration.to_dict() if hasattr(calibration, "to_dict") else calibration
    where = "the document"
    if isinstance(found, (str, Path)):
        where, found = str(found), _read(Path(found))
    stretch, rules = _applicable(where, found, always)
    layers = len(attentions(model))
    if len(rules) not in (1, layers):
        raise ValueError(f"[apply] {where} must have one rule, or one for each of {layers} layers; got {len(rules)}")
    try:
        stretch_rope(model, stretch, switched=not always)
    except ValueError as error:
        raise ValueError(f"[apply] {where} must fit the model; got {error}") from error
    set_rules(model, rules)


def _read(path: Path) -> Any:
    try:
        text = read_text(path)
    except ValueError as error:  # invalid file names, and files that are not regular
        raise ValueError(f"[apply] calibration must name a file that can be read; got {shown(str(path))}: {error}") from error
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"[apply] {path} must be JSON; got none at character {error.pos}") from error


def _applicable(where: str, found: Any, always: bool) -> tuple[Stretch, LayerRules]:
    """Returns stretch and rules of a calibration. Raises ValueError if it is invalid."""

    def fail(required: str, got: Any) -> NoReturn:
        raise ValueError(f"[apply] {where} must {required}; got {repr(got)[:100]}")

    if not isinstance(found, dict) or found.get("kind") != "calibration" or found.get("version") != 1:
        fail("be a calibration of version 1", found)
    trained, texts, rope = found.get("trained_length"), found.get("rule"), found.get("rope")
    if type(trained) is not int or not 1 <= trained < 1 << 40:
        fail("have a trained_length of at least 1", trained)
    try:
        rules = [ScaleRule(text) for text in ([texts] if isinstance(texts, str) else texts)]
        switched = [beyond(rule, trained) for rule in rules]
    except (KeyError, TypeError, ValueError):
        fail("have as rule standard or scaled(gain=...), or a list of these for the layers", texts)
    try:
        stretch = parse(json.dumps(rope["parameters"]))
    except (KeyError, TypeError, ValueError):
        fail("have rope with the parameters of a stretch", rope)
    return stretch, rules if always else switched


def beyond(rule: ScaleRule, trained: int) -> ScaleRule:
    """Returns the gain of `rule` for inputs of more than `trained` keys, and no gain for others."""
    gains = json.loads(rule.to_json())
    if gains["rule"] == "standard":
        return rule
    gain = gains["gain"]
    by_head = gain if isinstance(gain, list) else [gain]
    factor = [x for head in by_head for x in (1.0, head)]
    return ScaleRule.table([trained, trained + 1], factor, length="total")
