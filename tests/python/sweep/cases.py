"""Cases in which a model must give the eager attention's results: masks, training, caches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from sweep.inputs import LENGTH, padding, parameters_of
from sweep.tiny import VOCAB

NEW_TOKENS, START = 6, 1
SHARP = re.compile(r"(^|[._])(q|k|query|key|qk|qkv|q_proj|k_proj|wq|wk|to_q|to_k|c_attn|query_key_value|qkv_proj|q_b_proj|kv_b_proj|"
                   r"in_proj|in_proj_weight|query_proj|key_proj|q_lin|k_lin|wqkv|Wqkv|att_proj)(_proj|_layer)?\.(weight|dense\.weight)$")  # fmt: skip


def sharpen(model: nn.Module) -> None:
    """Gives matrices weights that keep the size of activations, and queries and keys larger ones, so that masks matter."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() < 2 or "norm" in name.lower() or not parameter.is_floating_point():
                continue
            fan_in = parameter[0].numel() if parameter.dim() != 3 else parameter.shape[-1]
            embedding = "embed" in name.lower() and parameter.dim() == 2 and parameter.shape[0] >= VOCAB
            parameter.normal_(0, 1 if embedding else (2 if SHARP.search(name) else 1) * fan_in**-0.5)
        for name, parameter in model.named_parameters():
            if name.endswith(("sinks", "_input.query")):  # the latter are queries over layers, 0 before training
                parameter.normal_()
            if name.endswith("qk_norm.temp"):  # ZAYA's factors on keys, which are 0 before training
                parameter.normal_(1, 0.3)


def first_output(result: Any) -> Tensor:
    for name in ("logits", "last_hidden_state", "prediction_logits", "start_logits"):
        if isinstance(getattr(result, name, None), Tensor):
            return getattr(result, name)
    values = result.to_tuple() if hasattr(result, "to_tuple") else result
    return next(value for value in values if isinstance(value, Tensor) and value.is_floating_point())


def run(model: nn.Module, **inputs: Any) -> Tensor:
    if "use_cache" in parameters_of(model):
        inputs.setdefault("use_cache", False)
    torch.manual_seed(7)
    return first_output(model(**inputs))


def plain(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        return run(model, **inputs)


def padded(side: str) -> Callable:
    def case(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor | None:
        if "input_ids" not in inputs or "attention_mask" not in parameters_of(model):
            return None
        mask = padding(side)
        with torch.no_grad():
            output = run(model, **inputs, attention_mask=mask)
        same = output.shape[:2] == mask.shape and "decoder_input_ids" not in inputs
        return output[mask.bool()] if same else output

    return case


def gradient(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor | None:
    """Gradient of a scalar loss with respect to what the model's embeddings return."""
    if "input_ids" not in inputs:
        return None
    seen: list[Tensor] = []

    def keep(module: nn.Module, arguments: Any, output: Tensor) -> Tensor:
        seen.append(output.detach().requires_grad_())
        return seen[-1].clone()  # some models change it in place

    handles = [module.register_forward_hook(keep) for module in model.modules() if isinstance(module, nn.Embedding)]
    try:
        output = run(model, **inputs)
        weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(9))
        gradients = torch.autograd.grad((output * weights).mean(), seen, allow_unused=True)
        return torch.cat([x.flatten() for x in gradients if x is not None])
    finally:
        for handle in handles:
            handle.remove()


def trained(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor | None:
    """The same in training mode."""
    model.train()
    try:
        return gradient(model, inputs)
    finally:
        model.eval()


def checkpointed(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor | None:
    """The same in training mode, with activation checkpointing."""
    if not getattr(model, "supports_gradient_checkpointing", False):
        return None
    model.gradient_checkpointing_enable()
    try:
        return trained(model, inputs)
    finally:
        model.gradient_checkpointing_disable()


def packed(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor | None:
    """Two documents in one row, told apart by positions that begin anew."""
    if set(inputs) != {"input_ids"} or "position_ids" not in parameters_of(model):
        return None
    positions = torch.cat([torch.arange(7), torch.arange(5)])[None]
    with torch.no_grad():
        return run(model, input_ids=inputs["input_ids"][:1], position_ids=positions)


def given_mask(boolean: bool) -> Callable:
    """A mask [batch, 1, queries, keys] of the caller's: causal, and in the second row without its first keys."""

    def case(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor | None:
        if set(inputs) != {"input_ids"} or "attention_mask" not in parameters_of(model):
            return None
        seen = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril().repeat(2, 1, 1, 1)
        seen[1, :, 3:, :2] = False
        # The eager attention adds its mask, so that it takes the boolean one as an additive one.
        additive = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
        boolean_here = boolean and model.config._attn_implementation != "eager"
        with torch.no_grad():
            return run(model, **inputs, attention_mask=seen if boolean_here else additive)

    return case


def greedy(cache: str | None) -> Callable:
    """Logits of greedy decoding [batch, new tokens, words], a batch with padding to the left; tokens where a model's own
    `generate` returns no logits. Caches that slide are those of layers with windows."""

    def case(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor | None:
        if not hasattr(model, "generate") or not model.can_generate() or "input_ids" not in inputs:
            return None
        if cache and not getattr(model, "_can_compile_fullgraph", False):
            return None
        if cache in ("sliding_window", "hybrid") and not has_windows(model):
            return None
        options = {} if cache is None else {"cache_implementation": cache, "disable_compile": True}
        if getattr(model.config, "is_encoder_decoder", False):
            options["decoder_start_token_id"] = START
        with torch.no_grad():
            result = model.generate(
                inputs["input_ids"], attention_mask=padding("left"), max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS,
                do_sample=False, num_beams=1, pad_token_id=0, return_dict_in_generate=True, output_logits=True, **options,
            )  # fmt: skip
        return result if isinstance(result, Tensor) else torch.stack(result.logits, 1)

    return case


def has_windows(model: nn.Module) -> bool:
    config = model.config.get_text_config()
    kinds = getattr(config, "layer_types", None) or [getattr(config, "sliding_window", None) and "sliding"]
    return any(kind and ("sliding" in kind or "chunked" in kind) for kind in kinds)


def weights(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor | None:
    """Weights of attention, which a model promises by output_attentions=True."""
    with torch.no_grad():
        result = model(**inputs, output_attentions=True)
    by_layer = [list(value) for name, value in result.items() if "attentions" in name and value is not None]
    by_layer = [x for layers in by_layer for x in layers if isinstance(x, Tensor)]
    return torch.cat([x.flatten() for x in by_layer]) if by_layer else torch.zeros(0)


CASES: dict[str, Callable[[nn.Module, dict[str, Tensor]], Tensor | None]] = {
    "plain": plain, "mask of ones": padded("no"), "left padding": padded("left"), "right padding": padded("right"),
    "gradient": gradient, "training": trained, "checkpointing": checkpointed, "packed": packed, "float mask": given_mask(False), "bool mask": given_mask(True),
    "greedy": greedy(None), "greedy, static cache": greedy("static"), "greedy, sliding cache": greedy("sliding_window"),
    "greedy, hybrid cache": greedy("hybrid"), "attention weights": weights,
}  # fmt: skip


def results(model: nn.Module, inputs: dict[str, Tensor]) -> Iterator[tuple[str, Tensor | Exception | None]]:
    """Yields each case's result, None where the model has no such case, or the error that it raised."""
    for name, case in CASES.items():
        try:
            yield name, case(model, inputs)
        except Exception as error:
            yield name, error
