"""Rules in a model's configuration: rules of `set_rule` are saved with the model, and restored when it is loaded.

The key `isentrope_rule` of config.json holds the text of the rule of all layers, or an object of the rules of some:

    "isentrope_rule": "logn(train_len=2048)"          "isentrope_rule": {"0": "ssmax", "4": "ssmax"}
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from transformers import PreTrainedModel

KEY = "isentrope_rule"


def write(model: PreTrainedModel, rules: Sequence[str | None]) -> None:
    """Writes the rule of each layer, or None, into the configuration."""
    if not any(rules):
        vars(model.config).pop(KEY, None)
    elif len(set(rules)) == 1:
        setattr(model.config, KEY, rules[0])
    else:
        setattr(model.config, KEY, {str(index): rule for index, rule in enumerate(rules) if rule})


def read(model: PreTrainedModel) -> dict[str, list[int] | None]:
    """Returns the layer indices of each rule in the configuration; None stands for all layers.

    Raises ValueError if the key holds anything else.
    """
    saved = getattr(model.config, KEY, None)
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
            f"[isentrope.hf] {KEY} of the configuration must be a rule, or an object of rules by layer; got {saved!r}"
        ) from None
    return layers


def call_after_loading(restore: Callable[[PreTrainedModel], None]) -> None:
    """Calls restore(model) with every model that from_pretrained returns from now on."""
    load = PreTrainedModel.from_pretrained.__func__  # type: ignore[attr-defined]

    @functools.wraps(load)
    def from_pretrained(cls: type, *args: Any, **kwargs: Any) -> Any:
        loaded = load(cls, *args, **kwargs)
        # With output_loading_info=True a tuple is returned.
        restore(loaded[0] if isinstance(loaded, tuple) else loaded)
        return loaded

    PreTrainedModel.from_pretrained = classmethod(from_pretrained)  # type: ignore[assignment,method-assign]
