"""Reads from a model's class what its attention expects of a mask and which arguments it passes."""

from __future__ import annotations

import dis
import functools
import inspect
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_MAPPING
from transformers.utils import output_capturing

from isentrope.statistics import StatisticNames, statistic_names

# Arguments that attention modules of transformers name in their calls and that change no attention weight.
_HARMLESS = frozenset({
    "num_items_in_batch",  # divides the loss
    "output_hidden_states",  # what the model returns beside its output
    "output_router_logits",  # the same
    "output_attentions",  # refuse_weights() reads it
    "cu_seq_lens_q",  # packed sequences for flash kernels; the eager attention reads their mask, or one call for each
    "cu_seq_lens_k",  # the same
    "max_length_q",  # the same
    "max_length_k",  # the same
    "cu_seqlens",  # the same for packed images
    "max_seqlen",  # the same
    "seq_idx",  # packed sequences for convolutions and state spaces
    "position_ids",  # in the mask and in rotated queries and keys; rules read them by an argument of their own
    "is_causal",  # call_options() reads it
    "deterministic",  # ModernBERT's flag for flash kernels
    "past_key_values",  # keys and values already come out of it
    "position_embeddings",  # queries and keys are already rotated
})  # fmt: skip


def reads_mask_as_eager(config: Any) -> bool:
    """Returns whether models of this configuration must get the additive mask of the eager attention.

    True for classes without support for sdpa: their code may add a bias to the mask, or take a missing mask for a full
    one although they are causal. Classes that support sdpa are tested with boolean and missing masks in transformers.
    transformers' list of classes decides. The configuration of other packages has the classes that were built with it.
    """
    if config is None:
        return False
    kind = type(config)
    if kind not in _SUPPORTS_SDPA:
        _SUPPORTS_SDPA[kind] = _is_listed_with_sdpa(kind)
    return not _SUPPORTS_SDPA[kind]


# Whether all classes of a configuration support sdpa; a dictionary, because torch.compile warns of functools.cache.
_SUPPORTS_SDPA: dict[type, bool] = {}


def _note_support(model: PreTrainedModel) -> None:
    """Remembers whether the model's class supports sdpa, unless transformers lists a class of its configuration.

    A class of another package with a listed configuration is mostly a wrapper of the listed one. One with an attention of
    its own that adds to a boolean mask raises an error (`RowMask`).
    """
    kind = type(model.config)
    if kind in MODEL_MAPPING:
        return
    _SUPPORTS_SDPA[kind] = _SUPPORTS_SDPA.get(kind, True) and type(model)._supports_sdpa


def _is_listed_with_sdpa(kind: type) -> bool:
    try:
        models = MODEL_MAPPING[kind]
    except (KeyError, ImportError, AttributeError):
        # Configurations of parts, such as a vision tower, may have no class in the list.
        return kind.__module__.startswith("transformers.")
    first = models[0] if isinstance(models, tuple) else models
    return getattr(first, "_supports_sdpa", True)


def check_arguments(module: nn.Module, arguments: dict[str, Any]) -> None:
    """Raises ValueError for an argument that may change the result and that isentrope does not use.

    It refuses arguments that the module's own code or its eager attention names, unless they are known to be harmless.
    Others (labels, flags of the caller) only pass through the module, and the eager attention ignores them as well.
    """
    unknown = [name for name, value in arguments.items() if value is not None and name not in _HARMLESS]
    accepted = (_names_in_forward(module) | _eager_parameters(module)) if unknown else frozenset()
    for name in unknown:
        if name in accepted:
            raise _unused_argument_error(module, name)


def _unused_argument_error(module: nn.Module, name: str) -> ValueError:
    return ValueError(
        f"[isentrope.hf] arguments of {type(module).__name__} must be known to isentrope; got {name}=, which may "
        'change the result: load the model with attn_implementation="eager"'
    )


def refuse_weights(module: nn.Module, arguments: dict[str, Any]) -> None:
    """Raises ValueError if the caller asks for attention weights, which a fused kernel never holds.

    transformers passes `output_attentions` to the attention, or collects what attention modules return beside their output.
    """
    collected = None if torch.compiler.is_compiling() else output_capturing._active_collector.get()
    if arguments.get("output_attentions") or any("attentions" in name for name in collected or ()):
        raise ValueError(
            f"[isentrope.hf] output_attentions must be False; got True for {type(module).__name__}, whose fused attention holds "
            'no weights: load the model with attn_implementation="eager", or read statistics by isentrope.hf.record'
        )


def refuse_mask(module: nn.Module, mask: Tensor) -> None:
    """Raises ValueError for a caller's mask that would be misread.

    Masks of integers may mean weights or visible keys. Boolean ones are turned round if the module's forward function
    adds to them.
    """
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise ValueError(
            f"[isentrope.hf] attention_mask of {type(module).__name__} must be boolean, or floating point and added to the "
            f"logits; got {mask.dtype}: write mask.bool() if it is nonzero at visible keys"
        )
    if mask.dtype == torch.bool and not torch.compiler.is_compiling() and _changes_mask(module):
        raise ValueError(
            f"[isentrope.hf] attention_mask of {type(module).__name__} must be additive, 0 or the lowest finite number, since its "
            'class adds a bias to it; got a boolean one: convert it, or use attn_implementation="eager"'
        )


def _changes_mask(module: nn.Module) -> bool:
    """Returns whether the module's forward function assigns another mask to attention_mask and is written for eager alone."""
    if not reads_mask_as_eager(getattr(module, "config", None)):
        return False
    forward = inspect.unwrap(type(module).forward)
    return any(x.opname == "STORE_FAST" and x.argval == "attention_mask" for x in dis.get_instructions(forward))


def _names_in_forward(module: nn.Module) -> frozenset[str]:
    """Returns constant strings of the module's forward function, which include the keywords of its calls."""
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    constants = () if code is None else code.co_consts
    tuples = [x if isinstance(x, tuple) else (x,) for x in constants]
    return frozenset(x for names in tuples for x in names if isinstance(x, str))


def _eager_parameters(module: nn.Module) -> frozenset[str]:
    """Returns the parameter names of the eager attention in the module of the class; empty if there is none."""
    eager = getattr(sys.modules.get(type(module).__module__), "eager_attention_forward", None)
    code = getattr(eager, "__code__", None)
    return frozenset() if code is None else frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def check_models_when_built(name: str) -> None:
    """Makes transformers raise ValueError when a class with a fixed table of attentions is built with `name`, and warn when
    a built one is set to it.

    Such classes (GIT, GPT-J, Falcon, ...) look their attention up in a table, which raises a bare KeyError. Remembers
    which classes support sdpa, whatever attention they are built with, since that can be set later.
    """
    choose = PreTrainedModel.get_correct_attn_implementation

    @functools.wraps(choose)
    def get_correct_attn_implementation(model: Any, requested: str | None, is_init_check: bool = False) -> str:
        _note_support(model)
        if requested != name or not (table := _fixed_attentions(type(model))):
            return choose(model, requested, is_init_check)
        wanted = f"the attention of {type(model).__name__} must be one of {', '.join(table)}; got {name!r}"
        if is_init_check:
            raise ValueError(f'[isentrope.hf] {wanted}: load the model with attn_implementation="eager"')
        # It may be a part of a model whose other parts can use it.
        used = model.config._attn_implementation
        warnings.warn(f"[isentrope.hf] {wanted}: it keeps {used!r}", stacklevel=4)
        return used

    PreTrainedModel.get_correct_attn_implementation = get_correct_attn_implementation  # type: ignore[assignment,method-assign]


def _fixed_attentions(kind: type) -> list[str]:
    """Returns the names in the table of attentions of a model's class; empty if there is no such table."""
    for name, table in getattr(sys.modules.get(kind.__module__), "__dict__", {}).items():
        if name.endswith("_ATTENTION_CLASSES") and isinstance(table, dict) and "eager" in table:
            return sorted(table)
    return []


def chosen_keys(module: nn.Module, query: Tensor, keys: int, indices: Tensor | None, blocks: Tensor | None) -> Tensor | None:
    """Returns which keys sparse attention chose, boolean [batch, heads or 1, queries, keys]; None if it chose none.

    indices: [batch, queries, chosen], keys of each query; repeats are allowed.
    blocks: [batch, groups, queries, chosen], blocks of keys of each query and group of heads; -1 stands for no block. The
    module's `indexer` has their size. Raises ValueError if it has none.
    """
    if indices is not None:
        chosen = torch.zeros(*indices.shape[:2], keys, dtype=torch.bool, device=indices.device)
        return chosen.scatter(-1, indices.long(), True)[:, None]
    if blocks is None:
        return None
    size = getattr(getattr(module, "indexer", None), "block_size", None)
    if size is None:
        raise _unused_argument_error(module, "block_indices")
    count = -(-keys // size)
    seen = torch.zeros(*blocks.shape[:3], count + 1, dtype=torch.bool, device=blocks.device)
    seen = seen.scatter(-1, blocks.long().masked_fill(blocks < 0, count), True)[..., :count]
    return seen.repeat_interleave(size, -1)[..., :keys].repeat_interleave(query.shape[1] // blocks.shape[1], 1)


def keep_chosen_keys(mask: Tensor | None, chosen: Tensor, causal: bool) -> Tensor:
    """Returns `mask` [batch, heads or 1, queries, keys] with all keys hidden that are not chosen.

    A boolean mask is intersected. An additive one becomes the lowest finite number at the hidden keys. Without a mask, a
    causal module's rows see the first keys, since a static cache is not filled past the queries; a single row sees all.
    """
    if mask is None:
        return chosen.tril() if causal and chosen.shape[-2] > 1 else chosen
    if mask.dtype == torch.bool:
        return mask & chosen
    return mask.masked_fill(~chosen, torch.finfo(mask.dtype).min)


def with_row_sinks(attend: Callable[[StatisticNames], Any], sinks: Tensor) -> Callable[[StatisticNames], Any]:
    """Returns `attend` with a logit of each row that joins the softmax without a value: [batch, heads, queries, 1].

    Such a logit multiplies all weights of its row by sigmoid(lse - sink). Statistics stay those of the real keys.
    Raises ValueError for sinks of another shape.
    """

    def run(wanted: StatisticNames) -> Any:
        names = statistic_names(wanted) or ()
        output, statistics = attend((*names, "lse"))
        if sinks.shape != (*output.shape[:3], 1):
            raise ValueError(
                f"[isentrope.hf] sinks must be {[*output.shape[:3], 1]}, a logit for each row of each head; got "
                f'{list(sinks.shape)}: load the model with attn_implementation="eager"'
            )
        output = output * torch.sigmoid(statistics.lse[..., None] - sinks).to(output.dtype)
        if wanted is False:
            return output
        return output, statistics if "lse" in names else statistics._replace(lse=None)

    return run
