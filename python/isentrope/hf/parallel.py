"""transformers models over sequences that are split over ranks: `isentrope.hf.context_parallel`."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from isentrope._core.values import shown
from isentrope.distributed.exchange import Group
from isentrope.distributed.functions import attention
from isentrope.distributed.sharding import gather, shard
from isentrope.hf.masks import bounds_of
from isentrope.hf.recording import observed
from isentrope.hf.register import call_options, layer_type
from isentrope.hf.rope import at_position, rotaries_by_length
from isentrope.hf.rules import CONTEXT_PARALLEL, attentions, config_of

_CONTEXT = "isentrope_context_parallel"
_TUNED = "isentrope_tuned_by_place"
IGNORED = -100  # label of positions without a target
_OF_TOKENS = ("input_ids", "inputs_embeds", "position_ids", "labels")


class ContextParallel:
    """State of the current sequence that the attentions of a model need."""

    def __init__(self, group: Group, method: str, layout: str) -> None:
        self.group, self.method, self.layout = group, method, layout
        self.sequence: dict[str, Any] = {}
        """Arguments of `attention` that are the same in every layer."""
        self.places = torch.empty(1, 0)
        """Positions of this rank's rows in the sequence, [1, rows]."""
        self.farthest = torch.zeros(())
        """The largest position of the sequence."""

    def shard(self, x: Tensor) -> Tensor:
        return shard(x, 1, self.group, self.layout)

    def before(self, model: nn.Module, args: tuple, inputs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """Replaces the inputs of the model's forward() by this rank's part."""
        names = [name for name in inspect.signature(model.forward).parameters if name != "kwargs"]
        inputs = dict(zip(names, args)) | inputs
        tokens = inputs.get("input_ids") if inputs.get("input_ids") is not None else inputs.get("inputs_embeds")
        batch, length = tokens.shape[:2]
        _refuse_inputs(model, inputs, batch, length)
        mask = inputs.pop("attention_mask", None)
        self.sequence = {"sequence_length": length} | _padding(mask, length)
        places = torch.arange(length, device=tokens.device)[None]
        self.places = self.shard(places)
        positions = inputs.get("position_ids")
        if positions is None:
            positions = places
        else:
            self.sequence |= _documents(positions, mask, batch)
            positions = positions.to(tokens.device, non_blocking=True)
        if (labels := inputs.get("labels")) is not None:
            shifted = nn.functional.pad(labels, (0, 1), value=IGNORED)[:, 1:]
            inputs["shift_labels"] = self.shard(shifted).contiguous()
            inputs.setdefault("num_items_in_batch", (shifted != IGNORED).sum())
        inputs["position_ids"] = positions
        self.farthest = positions.max()
        for name in _OF_TOKENS:
            if inputs.get(name) is not None:
                inputs[name] = self.shard(inputs[name])
        return (), inputs | ({"use_cache": False} if "use_cache" in names else {})

    def after(self, _: nn.Module, __: tuple, result: Any) -> Any:
        """Replaces the loss of this rank's part by that of the whole sequence."""
        if getattr(result, "aux_loss", None) is not None:
            raise ValueError(
                "[context_parallel] output_router_logits must be False: the loss of a router is no sum over tokens, so it is not "
                "that of the ranks' parts; got a model that computes it"
            )
        if getattr(result, "loss", None) is not None:
            result["loss"] = gather(result.loss[None], 0, self.group).sum()
        return result


def _refuse_model(model: nn.Module) -> None:
    """Refuses models in which something else than attention sees other tokens."""
    configs = (getattr(module, "config", None) for module in attentions(model))
    kinds = {kind for config in configs for kind in getattr(config, "layer_types", None) or ()}
    others = kinds - {"full_attention", "sliding_attention", "chunked_attention"}
    for refused, what in (
        (getattr(config_of(model), "is_encoder_decoder", False), "a decoder that shifts its labels and attends to an encoder"),
        (bool(others), f"layers of {', '.join(sorted(others))}"),
        (any(isinstance(module, nn.Conv1d) for module in model.modules()), "convolutions over tokens"),
    ):
        if refused:
            raise ValueError(
                f"[context_parallel] the model must mix tokens by its own attention alone, because each rank has some of them; got "
                f"{type(model).__name__}, which has {what}"
            )


def _refuse_inputs(model: nn.Module, inputs: dict[str, Any], batch: int, length: int) -> None:
    for name in ("past_key_values", "logits_to_keep"):
        if inputs.get(name) not in (None, 0):
            raise ValueError(
                f"[context_parallel] {name} must be None or 0, because rows are split over ranks: pass the whole sequence "
                f"without a cache; got {shown(inputs[name])}"
            )
    for name, x in inputs.items():
        if name not in (*_OF_TOKENS, "attention_mask") and isinstance(x, Tensor) and x.shape[:2] == (batch, length):
            raise ValueError(f"[context_parallel] {name} must be None, because it is not split over ranks; got {shown(x)}")
    returns = inputs.get("return_dict")
    if not (getattr(config_of(model), "return_dict", True) if returns is None else returns):
        raise ValueError("[context_parallel] return_dict must be True, so that the loss is found; got False")
    if inputs.get("labels") is not None and not _is_loss_of_next_token(model):
        raise ValueError(
            f"[context_parallel] labels must be None in a {type(model).__name__}, because only the loss of the next token is "
            "computed over ranks: compute another from the logits"
        )


def _is_loss_of_next_token(model: nn.Module) -> bool:
    """Returns whether the model calls the function of transformers that takes the whole sequence's labels and their number."""
    inner = next((module for module in model.modules() if isinstance(module, PreTrainedModel)), model)  # of an adapter
    forwards = [inspect.unwrap(vars(owner)["forward"]) for owner in type(inner).__mro__ if "forward" in vars(owner)]
    called = any("loss_function" in forward.__code__.co_names for forward in forwards)
    return called and (getattr(inner, "loss_type", None) or "ForCausalLM").endswith(("ForCausalLM", "ForConditionalGeneration"))


def _padding(mask: Tensor | None, length: int) -> dict[str, Tensor]:
    if mask is None:
        return {}
    if mask.dim() != 2 or mask.shape[1] != length:
        raise ValueError(f"[context_parallel] attention_mask must be [batch, {length}]; got {list(mask.shape)}")
    bounds = bounds_of(mask.cpu(), length)  # computed on the CPU, because the ranks' messages depend on it
    if bounds is None:
        raise ValueError("[context_parallel] attention_mask must leave one range of keys in each row; got holes")
    return bounds


def _documents(positions: Tensor, mask: Tensor | None, batch: int) -> dict[str, Tensor]:
    """Returns the documents packed in a sequence: positions restart with each, after a key that is no padding."""
    restarts = positions.cpu()[:, 1:] == 0
    if mask is not None:
        shown = mask.cpu().bool()
        restarts = restarts & shown[:, 1:] & shown[:, :-1]
    begins = restarts.nonzero()
    if not len(begins):
        return {}
    if positions.shape[0] != 1 or batch != 1:
        raise ValueError(f"[context_parallel] packed documents must come in a batch of 1; got {batch}")
    ends = [0, *(begins[:, 1] + 1).tolist(), positions.shape[1]]
    return {"documents": torch.tensor(ends)}


def attention_forward(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, dropout: float = 0.0,
    position_bias: Tensor | None = None, sliding_window: int | None = None, **logits: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Computes attention for transformers, as `isentrope.hf.attention_forward`, with the rows of this rank."""
    context: ContextParallel = getattr(module, _CONTEXT)
    causal, options = call_options(module, **logits)
    chunked = layer_type(module) == "chunked_attention"
    for refused, what in (
        (dropout > 0, "attention dropout"), (position_bias is not None, "a position bias"),
        (attention_mask is not None, "a mask of its own"),
        (sliding_window is not None and not causal, "a window to both sides"),
        (sliding_window is None and _is_windowed(module), "a window that only its mask has"),
        # transformers' chunks continue across documents, the operator's restart in each.
        (chunked and "documents" in context.sequence, "chunks with packed documents"),
    ):  # fmt: skip
        if refused:
            raise ValueError(f"[context_parallel] the model must have no attention with {what}; got one")
    if getattr(module, _TUNED, False):
        query = _with_temperature(module, query, context.places)
    return observed(module, query, key, options, lambda wanted: attention(
        query, key, value, group=context.group, method=context.method, layout=context.layout, causal=causal,
        window_size=(-1 if sliding_window is None else sliding_window - 1, -1),
        chunk_size=module.config.attention_chunk_size if chunked else 0, return_stats=wanted, **options,
        **context.sequence,
    ))  # fmt: skip


def _is_windowed(module: nn.Module) -> bool:
    kind, window = layer_type(module), getattr(getattr(module, "config", None), "sliding_window", None)
    return window is not None and kind in (None, "sliding_attention")


# transformers makes no masks for an attention without a mask function, so masks are those of the whole sequence.
AttentionInterface.register(CONTEXT_PARALLEL, attention_forward)


def _with_temperature(module: nn.Module, query: Tensor, places: Tensor) -> Tensor:
    """Returns the query with Llama 4's factor for layers without RoPE, by the rows' positions in the sequence."""
    steps = torch.floor((places.float() + 1.0) / module.floor_scale)
    growth = torch.log1p(steps) * module.attn_scale + 1.0
    return (query * growth[:, None, :, None]).to(query.dtype)


def spread(model: nn.Module, group: Group, method: str, layout: str) -> None:
    _refuse_model(model)
    context = ContextParallel(group, method, layout)
    for module in attentions(model):
        setattr(module, _CONTEXT, context)
        if getattr(module, "attn_temperature_tuning", False) and not module.use_rope:
            # The module itself would count positions of this rank's rows from 0.
            module.attn_temperature_tuning = False  # type: ignore[assignment]
            setattr(module, _TUNED, True)
    for module in rotaries_by_length(model):
        at_position(module, lambda _: context.farthest)
    model.set_attn_implementation(CONTEXT_PARALLEL)
    model.register_forward_pre_hook(context.before, with_kwargs=True)
    model.register_forward_hook(context.after)
