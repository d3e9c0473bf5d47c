"""Registers the attention with transformers, and restores rules of models that are loaded."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface

from isentrope._core.attend import attend
from isentrope._core.call import call_of
from isentrope._core.masks import Masks
from isentrope.hf import positions
from isentrope.hf.architectures import (
    check_arguments, check_models_when_built, chosen_keys, keep_chosen_keys, reads_mask_as_eager, refuse_mask, refuse_weights,
    with_row_sinks,
)  # fmt: skip
from isentrope.hf.masks import RowMask, row_mask
from isentrope.hf.recording import observed
from isentrope.hf.rope import stretch_as_saved
from isentrope.hf.rules import NAME, READS_POSITION, RULE, assign_rule, config_of, saved_rules
from isentrope.rules import ScaleRule
from isentrope.statistics import StatisticNames


def attention_forward(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, dropout: float = 0.0,
    position_bias: Tensor | None = None, sliding_window: int | None = None, position_ids: Tensor | None = None,
    indices: Tensor | None = None, block_indices: Tensor | None = None, sinks: Tensor | None = None, **logits: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Computes attention for transformers: query [batch, heads, queries, dim], output [batch, queries, heads, dim].

    dropout: probability with which a weight is dropped from the output; statistics are those of all weights.
    indices: [batch, queries, chosen], the keys to which sparse attention restricts each query. n counts those alone.
    block_indices: [batch, groups, queries, chosen], the blocks of keys to which it restricts each query of a group of heads.
    sinks: [batch, heads, queries, 1], a logit of each row that joins the softmax without a value; statistics are those of
    the real keys.

    Raises ValueError for an argument that may change the result and is not used. Raises it for a rule of the position
    if the architecture does not pass positions or chooses keys.
    """
    causal, options = call_options(module, **logits)
    if reads_mask_as_eager(getattr(module, "config", None)):
        causal = False  # without a mask the eager attention is full, whatever the module says
    options["dropout_p"] = dropout
    masks: Masks | None = None
    if attention_mask is not None and not isinstance(attention_mask, RowMask):
        refuse_mask(module, attention_mask)
    chosen = chosen_keys(module, query, key.shape[2], indices, block_indices)
    if chosen is not None:
        if getattr(module, READS_POSITION, False):
            raise ValueError(
                f"[isentrope.hf] the rule of {type(module).__name__}, which chooses keys for each query, must read the number of keys "
                f"that a row sees; got {getattr(module, RULE)}: set a rule with length=visible"
            )
        dense = attention_mask.dense() if isinstance(attention_mask, RowMask) else attention_mask
        attention_mask = keep_chosen_keys(dense, chosen, causal)
    if isinstance(attention_mask, RowMask):
        whole = attention_mask.shape[2:] == (query.shape[2], key.shape[2])
        masks, attention_mask = (attention_mask.masks, None) if whole else (None, attention_mask.dense())
    mask, bias = _mask_and_bias(attention_mask, position_bias, key.shape[2])
    if masks is None and mask is None and causal:
        if query.shape[2] > 1 and key.shape[2] > query.shape[2]:
            # In the first fill of a static cache, keys past the queries are not written yet.
            key, value = key[:, :, : query.shape[2]], value[:, :, : query.shape[2]]
        options["causal"] = "bottom_right"

    def run(wanted: StatisticNames) -> Any:
        if masks is not None:
            return attend(call_of(query, key, value, bias=bias, masks=masks, **options), wanted)
        if getattr(module, READS_POSITION, False):
            drops = sliding_window is not None or layer_type(module) not in (None, "full_attention")
            return positions.attend(
                query, key, value, mask, bias, position_ids, (sliding_window or 0) if drops else None, return_stats=wanted, **options
            )
        return attend(call_of(query, key, value, bias=bias, attn_mask=mask, **options), wanted)

    return observed(module, query, key, options, run if sinks is None else with_row_sinks(run, sinks))


def call_options(
    module: nn.Module, scaling: float | None = None, is_causal: bool | None = None, softcap: float | None = None,
    s_aux: Tensor | None = None, **others: Any,
) -> tuple[bool, dict[str, Any]]:  # fmt: skip
    """Returns whether a call without a mask is causal, and the operator's options for its logits.

    A module that does not say whether it is causal is not: without a mask the eager attention is full.
    Raises ValueError for arguments among `others` that may change the result.
    """
    check_arguments(module, others)
    refuse_weights(module, others)
    causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
    rule = getattr(module, RULE, "standard")
    return causal, {"rule": rule, "scale": scaling, "soft_cap": softcap or 0.0, "sinks": s_aux}


def layer_type(module: nn.Module) -> str | None:
    """Returns "full_attention", "sliding_attention", "chunked_attention", ...; None if the configuration does not say.

    The caches of all but the first drop keys that are out of reach.
    """
    kinds = getattr(getattr(module, "config", None), "layer_types", None)
    return kinds[module.layer_idx] if kinds else None


def _mask_and_bias(mask: Tensor | None, bias: Tensor | None, keys: int) -> tuple[Tensor | None, Tensor | None]:
    """Splits a mask into boolean mask and bias. A caller's mask may be additive, with very low numbers."""
    if mask is None or mask.dtype == torch.bool:
        return None if mask is None else mask[..., :keys], bias
    mask = mask[..., :keys]
    seen = mask > torch.finfo(mask.dtype).min / 2
    added = torch.where(seen, mask, 0)
    return seen, added if bias is None else added + bias


AttentionInterface.register(NAME, attention_forward)
# Without a mask function an attention gets no masks at all, and padding would be visible.
AttentionMaskInterface.register(NAME, row_mask)
check_models_when_built(NAME)


def _restore(model: nn.Module) -> None:
    """Restores the rules and the stretch of RoPE that a loaded model was saved with."""
    rules = saved_rules(model)
    used = getattr(model.config, "_attn_implementation", None)
    if rules and used != NAME:
        warnings.warn(
            f'[isentrope.hf] the model was saved with the rule {", ".join(rules)}, which acts under '
            f'attn_implementation="{NAME}" alone; got {used!r}',
            stacklevel=3,
        )
        return
    for rule, layers in rules.items():
        assign_rule(model, ScaleRule(rule), layers, force=True)  # whoever saved it already decided
    if used == NAME:
        stretch_as_saved(model)


_load = PreTrainedModel.from_pretrained.__func__  # type: ignore[attr-defined]


@functools.wraps(_load)
def _load_and_restore(cls: type, *args: Any, **kwargs: Any) -> Any:
    loaded = _load(cls, *args, **kwargs)
    # With output_loading_info=True a tuple is returned.
    _restore(loaded[0] if isinstance(loaded, tuple) else loaded)
    return loaded


PreTrainedModel.from_pretrained = classmethod(_load_and_restore)  # type: ignore[assignment,method-assign]


@contextmanager
def reading(model: nn.Module) -> Iterator[None]:
    """Gives the model isentrope's attention and evaluation mode inside the block, and restores both of every part."""
    main = config_of(model)
    training = {module: module.training for module in model.modules()}
    parts = [module.config for module in training if isinstance(module, PreTrainedModel)]
    parts += [getattr(main, name) for name in main.sub_configs]  # of parts that are no models of their own
    attentions = [(part, part._attn_implementation) for part in (main, *parts) if part is not None]
    try:
        model.set_attn_implementation(NAME)
        model.eval()
        yield
    finally:
        for part, attention in attentions:
            part._attn_implementation_internal = attention  # transformers' setter also sets the parts of a part
            vars(part).pop("_attn_was_changed", None)  # transformers leaves it on parts of parts, and then skips them
        for module, mode in training.items():
            module.training = mode
