"""Rules of a model: the one in its configuration, and those that are set, which are saved with the model.

The key `isentrope_rule` of config.json holds the text of the rule of all layers, or an object of the rules of some:

    "isentrope_rule": "logn(train_len=2048)"          "isentrope_rule": {"0": "ssmax", "4": "ssmax"}
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn
from transformers import PreTrainedModel

from isentrope._core.library import CHECKED
from isentrope._core.values import check_bool, shown
from isentrope.rules import ScaleRule, rule_text

NAME = "isentrope"
CONTEXT_PARALLEL = "isentrope_context_parallel"
# Attributes of modules set by set_rule(): the rule, also a key of the configuration, and whether it needs positions.
RULE, READS_POSITION = "isentrope_rule", "isentrope_rule_reads_position"

# Names of cross-attention in models of transformers; T5Gemma 2's merged one reads keys of both sequences.
_CROSS = re.compile("cross_?att|encoder_attn|encdec|encoder_decoder_att|mergedatt", re.IGNORECASE)


def config_of(model: nn.Module) -> Any:
    """Returns the configuration. Raises TypeError unless the model is one of transformers."""
    if not isinstance(model, nn.Module) or not hasattr(model, "config"):
        raise TypeError(f"[isentrope.hf] model must be a model of transformers; got {type(model).__name__}")
    return model.config


def attentions(model: nn.Module) -> list[nn.Module]:
    """Returns the attention modules that use isentrope, in the order of the layers. Raises ValueError if none does."""
    used = getattr(config_of(model), "_attn_implementation", None)
    if used not in (NAME, CONTEXT_PARALLEL):
        raise ValueError(
            f'[isentrope.hf] the model must use attn_implementation="{NAME}"; got {used!r}: load '
            "the model with it, if its architecture has a replaceable attention"
        )
    # Inkling 2's attention over its layers, a *AttentionResidual, sees no tokens that a rule could count.
    candidates = [m for m in model.modules() if re.search("Attention(?!Residual)", type(m).__name__)]
    innermost = [m for m in candidates if not any("Attention" in type(c).__name__ for c in m.modules() if c is not m)]
    if not innermost:
        raise ValueError(f"[isentrope.hf] the model must have attention modules; got {type(model).__name__}")
    owners = {module: owner for owner in model.modules() if isinstance(owner, PreTrainedModel) for module in owner.modules()}
    using = [m for m in innermost if _uses_isentrope(m, owners.get(m))]
    if not using:
        raise ValueError(
            f"[isentrope.hf] the model must have a replaceable attention; got {type(model).__name__}, whose "
            f"{type(innermost[0]).__name__} computes its own"
        )
    return using


def _uses_isentrope(module: nn.Module, owner: PreTrainedModel | None) -> bool:
    """Returns False for a module that is set to another attention, or whose class `owner` never looks one up.

    transformers reads the source of the class to find out. A class without one, as in notebooks, is believed to.
    """
    if owner is None:
        return True
    used = getattr(getattr(module, "config", owner.config), "_attn_implementation", None)
    if used not in (NAME, CONTEXT_PARALLEL):
        return False
    kind = type(owner)
    if kind._can_set_attn_implementation() or not hasattr(kind, "_can_set_attn_implementation_cached_value"):
        return True
    # transformers looks for the newer way of code that looks an attention up.
    return "ALL_ATTENTION_FUNCTIONS[" in inspect.getsource(sys.modules[kind.__module__])


class ModelRule(NamedTuple):
    """The scale that a model's configuration describes."""

    rule: ScaleRule | None
    """None for a family that is not known."""
    layers: str
    """Which layers it acts on: "all", "without rotary embedding", "global"."""
    keys: list[str]
    """The keys of the configuration that decided."""
    notes: list[str]
    by_length: bool
    """Whether the model answers longer inputs with another scale already. For a family that is not known: whether its
    configuration has keys by which other families do."""
    known: bool = True
    """Whether the code of the model's family was read. If not, it may scale by anything."""


def model_rule(model: nn.Module) -> ModelRule:
    """Returns the rule in the model's configuration, or `known=False` and no rule for a family whose code was not read.

    A family is a `model_type` of transformers, that of the language model if the model has several parts. Raises
    ValueError if the configuration has impossible values.
    """
    return rule_of_config(config_of(model))


def rule_of_config(config: Any) -> ModelRule:
    """Returns the rule of a model's configuration; see `model_rule`."""
    config = config.get_text_config()
    scale = json.loads(CHECKED.model_scale(json.dumps(config.to_dict(), default=str)))
    rule, known = ScaleRule(scale["rule"]), scale["known"]
    stretched = any("rope_type" in key or key.endswith(".type") for key in scale["keys"])
    by_length = stretched or CHECKED.rule_reads_length(rule.text)
    return ModelRule(rule if known else None, scale["layers"], scale["keys"], scale["notes"], by_length, known)


def _indices(layers: Iterable[int]) -> list[int]:
    chosen: list[Any] = list(layers) if isinstance(layers, Iterable) and not isinstance(layers, Tensor) else [None]
    if not all(isinstance(index, int) for index in chosen):
        raise TypeError(f"[set_rule] layers must be indices, such as [0, 2]; got {shown(layers)}")
    return chosen


def set_rule(
    model: nn.Module, rule: str | ScaleRule | None, layers: Iterable[int] | None = None, force: bool = False
) -> None:
    """Sets the rule of all layers, or of those with the indices `layers`; None removes it.

    `save_pretrained` writes the rule to config.json as `isentrope_rule`, and `from_pretrained` restores it.

    The model's own softmax scale replaces the rule's 1/sqrt(d); the rule adds its growth with n. n counts the keys that
    a row sees, without padding, unless the rule says otherwise (docs/scale-rules.md).

    Warns about a rule that counts `length=total` in a decoder, where every token changes the scale of earlier ones.
    Warns about a family that is not known (`model_rule`), which may scale by length itself.

    Raises ValueError if the model does not use isentrope or has no such layer. Raises it if the rule is invalid or has
    numbers for a different number of heads. Raises it too if the model already scales by length (Llama 4, Ministral 3,
    YaRN, ...) and `force` is not set. Raises it if a layer of cross-attention gets a rule that reads the position.
    Raises TypeError if `layers` are not indices, or `force` is no bool.
    """
    if rule is not None:
        rule = rule if isinstance(rule, ScaleRule) else ScaleRule(rule)
    check_bool("set_rule", "force", force)
    chosen = assign_rule(model, rule, layers, force)
    if rule is not None and not force and not model_rule(model).known:
        family = getattr(config_of(model).get_text_config(), "model_type", None)
        warnings.warn(
            f"[set_rule] the model's family should be one whose scale is known; got {family!r}. "
            f"{rule.text} multiplies the scale in the model's code. Pass force=True if that scale does not depend on the length",
            stacklevel=2,
        )
    if rule is not None and _counts(rule, "total") and any(getattr(layer, "is_causal", True) for layer in chosen):
        warnings.warn(
            f"[set_rule] {rule.text} counts all keys of a call (length=total): in a decoder, tokens that are appended "
            "change the scale of those before them, and a cached generation differs from a whole pass; "
            "length=visible counts what each row sees",
            stacklevel=2,
        )


def _counts(rule: ScaleRule, length: str) -> bool:
    parsed = json.loads(rule.to_json())
    return any(term.get("length") == length for term in parsed.get("product", [parsed]))


def _refuse_cross_attention(rule: ScaleRule, model: nn.Module, layers: list[nn.Module]) -> None:
    """Raises ValueError if a layer reads keys of another sequence, in which its queries have no position.

    Its place in the model tells: the class is often that of self-attention, and a call shows keys alone.
    """
    names = {module: ".".join(name.split(".")[-2:]) for name, module in model.named_modules()}
    for layer in layers:
        if _CROSS.search(f"{names[layer]} {type(layer).__name__}") or getattr(layer, "is_cross_attention", False):
            raise ValueError(
                f"[set_rule] layers must be of self-attention under a rule that reads the position; got {names[layer]} under "
                f"{rule.text}: pass layers= without cross-attention, or a rule with length=visible"
            )


def assign_rule(model: nn.Module, rule: ScaleRule | None, layers: Iterable[int] | None, force: bool) -> list[nn.Module]:
    """Sets rules like `set_rule`, without warnings. Returns the selected layers."""
    modules = attentions(model)
    chosen = range(len(modules)) if layers is None else _indices(layers)
    for index in chosen:
        if not 0 <= index < len(modules):
            raise ValueError(f"[set_rule] layers must be at least 0 and below {len(modules)}; got {index}")
    if rule is not None:
        CHECKED.rule_text(rule_text(rule, 1.0))  # raises for rules whose own scale cannot be replaced by the model's
        own_rule = model_rule(model)
        if own_rule.by_length and not force:
            raise ValueError(
                f"[set_rule] the model must not scale by length already; got "
                f"{repr(own_rule.rule.text) if own_rule.rule else 'a family that is not known'} with "
                f"{', '.join(own_rule.keys)} (force=True applies both)"
            )
        _check_heads(rule, [modules[index] for index in chosen])
        if _counts(rule, "position"):
            _refuse_cross_attention(rule, model, [modules[index] for index in chosen])
    for index in chosen:
        setattr(modules[index], RULE, rule or "standard")
        setattr(modules[index], READS_POSITION, rule is not None and CHECKED.rule_reads_position(rule.text))
    rules = (getattr(module, RULE, "standard") for module in modules)
    _write(model, [None if rule == "standard" else rule.text for rule in rules])
    return [modules[index] for index in chosen]


def _write(model: PreTrainedModel, rules: Sequence[str | None]) -> None:
    """Writes the rule of each layer, or None, into the configuration."""
    if not any(rules):
        vars(model.config).pop(RULE, None)
    elif len(set(rules)) == 1:
        setattr(model.config, RULE, rules[0])
    else:
        setattr(model.config, RULE, {str(index): rule for index, rule in enumerate(rules) if rule})


def saved_rules(model: PreTrainedModel) -> dict[str, list[int] | None]:
    """Returns the layer indices of each rule in the configuration; None stands for all layers.

    Raises ValueError if the key holds anything else.
    """
    saved = getattr(model.config, RULE, None)
    if saved is None:
        return {}
    if isinstance(saved, str):
        return {saved: None}
    layers: dict[str, list[int] | None] = {}
    try:
        for index, rule in saved.items():
            layers.setdefault(rule, []).append(int(index))
    except (AttributeError, TypeError, ValueError):
        raise ValueError(
            f"[isentrope.hf] {RULE} of the configuration must be a rule, or an object of rules by layer; got {saved!r}"
        ) from None
    return layers


def _heads_of(layer: nn.Module) -> int | None:
    for owner in (layer, getattr(layer, "config", None)):
        for name in ("num_heads", "num_attention_heads"):
            if isinstance(count := getattr(owner, name, None), int):
                return count
    return None


def _check_heads(rule: ScaleRule, layers: list[nn.Module]) -> None:
    """Raises ValueError unless per-head numbers match the heads, if the architecture tells their number."""
    heads = CHECKED.rule_heads(rule.text)
    for layer in layers:
        has = _heads_of(layer)
        if heads != 1 and has not in (None, heads):
            raise ValueError(f"[set_rule] rule must have a number for each of the {has} heads, or one for all; got {heads}")
