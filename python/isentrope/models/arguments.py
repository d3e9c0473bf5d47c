"""Checks texts and callbacks of the caller before a model reads anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from isentrope._core.checks import kind
from isentrope._core.values import shown
from isentrope.hf.rules import RULE, config_of


def checked_list(function: str, name: str, values: Any, of: str) -> Sequence[Any]:
    """Returns the value. Raises TypeError unless it is a list or tuple; a single text is refused."""
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"[{function}] {name} must be a list of {of}; got one {kind(values)}")
    return values


def check_tokens(function: str, name: str, tokens: Any) -> None:
    """Raises an error unless the tokens of one text are integers [tokens]."""
    integers = isinstance(tokens, Tensor) and tokens.dtype in (torch.int32, torch.int64)
    if not integers or tokens.layout is not torch.strided or tokens.is_meta or tokens.dim() != 1:
        raise TypeError(f"[{function}] {name} must be a tensor of int64 [tokens]; got {kind(tokens)}")


def check_texts(function: str, name: str, texts: Any) -> None:
    for text in checked_list(function, name, texts, "tensors"):
        check_tokens(function, name, text)


def check_words(function: str, name: str, texts: Iterable[Tensor], model: nn.Module) -> None:
    """Raises ValueError if a token is outside the model's vocabulary, which would read past its end."""
    config_of(model)
    words = model.get_input_embeddings().num_embeddings
    for text in texts:
        least, most = (int(text.min()), int(text.max())) if text.numel() > 0 else (0, 0)
        if least < 0 or most >= words:
            got = f"{least} to {most}"
            raise ValueError(f"[{function}] {name} must be tokens of the model's vocabulary, 0 to {words - 1}; got {got}")


def check_no_rule(function: str, model: nn.Module) -> None:
    """Raises ValueError if a rule was set or saved, whose effect would be taken for that of the model."""
    if rule := getattr(config_of(model), RULE, None):
        raise ValueError(
            f"[{function}] model must have no rule that was set or saved; got {rule}: take it off by "
            'isentrope.hf.set_rule(model, None) with attn_implementation="isentrope", or from its config.json'
        )


def check_progress(function: str, progress: Any) -> None:
    if progress is not None and not callable(progress):
        raise TypeError(f"[{function}] progress must be a function, or None; got {shown(progress)}")
