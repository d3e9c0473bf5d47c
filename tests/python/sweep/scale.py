"""Compares the scale that `model_rule` tells of a model with its code's: the scale passed, times factors on q and k."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection
from typing import Any, NamedTuple

import torch
from scales import rule_scale
from torch import Tensor, nn
from transformers import AttentionInterface

import isentrope.hf
from sweep.cases import plain

POSITIONS = 16  # compared in each call
PRECISION = 1e-4  # relative
GROWTH = 0.02  # a factor by length grows by less over so few tokens
AGREES, NOT_KNOWN, NOT_MEASURED = "agrees", "not known", "not measured"
# Families whose queries are no module's output times a number. The scale that they pass is compared alone.
BIASES = "learned biases of the relative position are added to queries"
REASONS = {
    "jetmoe": "experts make the queries of their tokens, and a function outside of modules puts them in order",
    "nemotron3_5_asr": BIASES, "nemotron_asr_streaming": BIASES, "nemotron_asr_streaming_encoder": BIASES,
    "parakeet_ctc": BIASES, "parakeet_encoder": BIASES, "parakeet_rnnt": BIASES, "parakeet_tdt": BIASES,
    "wav2vec2-conformer": BIASES,
}  # fmt: skip


class Call(NamedTuple):
    """One call of the attention."""

    dim: int
    passed: float
    """The scale that the model passes."""
    on_queries: float | None
    """The factor between queries at the first position and a module's output or parameter; None if there is no such one."""
    on_keys: float | None

    @property
    def scale(self) -> float | None:
        measured = self.on_queries is not None and self.on_keys is not None
        return self.passed * self.on_queries * self.on_keys if measured else None


def compare(model: nn.Module, calls: Collection[Call]) -> str | None:
    """Returns AGREES, NOT_KNOWN, NOT_MEASURED with the reason, or what differs; None for a model of several parts, which
    are families of their own.

    A rule by length is compared at its first position. Every scale that is passed needs one call that can be measured.
    """
    config = model.config
    if config.get_text_config() is not config:
        return None
    if not isentrope.hf.model_rule(model).known:
        return NOT_KNOWN
    reason = REASONS.get(config.model_type)
    for dim, passed in sorted({(call.dim, call.passed) for call in calls}):
        alike = [call.scale for call in calls if (call.dim, call.passed) == (dim, passed)]
        found = {passed} if reason else {scale for scale in alike if scale is not None}
        if not found:
            return f"no module's output is a multiple of the queries or keys with a head dimension of {dim}"
        rule = rule_scale(model, 0, 1, dim)
        for scale in found:
            if not math.isclose(scale, rule, rel_tol=PRECISION):
                return f"model_rule tells {rule:.6g} for a head dimension of {dim}; the model's code has {scale:.6g}"
    return f"{NOT_MEASURED}: {reason}" if reason else AGREES


def measured_calls(model: nn.Module, inputs: dict[str, Tensor]) -> list[Call]:
    """Returns the calls of isentrope's attention in one forward pass, up to an error, if there is one."""
    calls: list[Call] = []
    outputs: list[Tensor] = []
    previous: list[Any] = [None, 0]  # the module of the last call, and the number of outputs before it
    attend = isentrope.hf.register.attention_forward

    def keep(module: nn.Module, arguments: Any, output: Any) -> None:
        tensors = output if isinstance(output, (tuple, list)) else [output]
        outputs.extend(x.detach().clone() for x in tensors if isinstance(x, Tensor) and x.is_floating_point() and x.dim() > 1)

    def measure(module: nn.Module, query: Tensor, key: Tensor, *arguments: Any, scaling: float | None = None, **options: Any) -> Any:
        if module is not previous[0]:
            del outputs[: previous[1]]
        previous[:] = module, len(outputs)
        batch, _, _, dim = query.shape
        learned = [x.reshape(-1, dim).expand(batch, -1, -1) for x in module.parameters(recurse=False) if x.shape[-1:] == (dim,)]
        split = getattr(module, "qk_nope_head_dim", None)
        on_queries, on_keys = (factor_on(states, learned + outputs, split) for states in (query, key))
        calls.append(Call(dim, dim**-0.5 if scaling is None else float(scaling), on_queries, on_keys))
        return attend(module, query, key, *arguments, scaling=scaling, **options)

    handles = [module.register_forward_hook(keep) for module in model.modules()]
    AttentionInterface.register("isentrope", measure)
    try:
        with contextlib.suppress(Exception):  # the case without padding reports it
            plain(model, inputs)
    finally:
        AttentionInterface.register("isentrope", attend)
        for handle in handles:
            handle.remove()
    return calls


def factor_on(states: Tensor, outputs: list[Tensor], split: int | None = None) -> float | None:
    """Returns the factor on the first output [batch, tokens, ...] that has these heads [batch, heads, tokens, dim]; None if none has.

    RoPE turns all rows of a batch by the same angles, so that inner products at one position keep their values. A factor
    multiplies all of them by its square. split: dimension at which heads may be joined from two outputs.
    """
    batch, _, length, dim = states.shape
    wanted = inner_products(states.transpose(1, 2))
    for output in outputs:
        heads = heads_of(output, batch, length, dim)
        if heads is not None and (factor := common_factor(wanted, inner_products(heads))):
            return factor
    if split is None or not 0 < split < dim:
        return None
    first, second = (factor_on(part, outputs) for part in states.split([split, dim - split], -1))
    return first if first and second and math.isclose(first, second, rel_tol=PRECISION) else None


def heads_of(output: Tensor, batch: int, length: int, dim: int) -> Tensor | None:
    """Returns a view [batch, tokens, heads, dim] of all columns that may be a head; None for another number of tokens.

    Models of packed images call their attention once for each, so that the first one's patches are the first rows.
    """
    if batch == 1 and output.dim() - (output.shape[0] == 1) == 2:
        output = output.reshape(-1, output.shape[-1])[:length]
    columns, rest = divmod(output.numel(), batch * length)
    if rest or columns < dim:
        return None
    if output.dim() == 4 and output.shape[::2] == (batch, length):
        output = output.transpose(1, 2)
    return output.reshape(batch, length, columns).unfold(-1, dim, math.gcd(dim, 4))


def inner_products(heads: Tensor) -> Tensor:
    """Returns those of the rows of a batch [heads, positions, batch, batch], at the first positions."""
    heads = heads[:, :POSITIONS].detach().double()
    return torch.einsum("blhd,clhd->hlbc", heads, heads)


def common_factor(wanted: Tensor, computed: Tensor) -> float | None:
    """Returns the factor with whose square each head's products are those of a computed head; None if there is none."""
    wanted, computed = wanted[:, None], computed[None]
    largest = wanted.abs().amax((-2, -1))
    squares = wanted.diagonal(dim1=-2, dim2=-1).sum(-1) / computed.diagonal(dim1=-2, dim2=-1).sum(-1).clamp(min=1e-30)
    squares = squares.where(largest > 0, squares[..., :1])  # padding around images
    same = (wanted - squares[..., None, None] * computed).abs().amax((-2, -1)) <= PRECISION * largest
    matches = (same & ((squares / squares[..., :1] - 1).abs() <= GROWTH)).all(-1)
    if not matches.any(1).all():
        return None
    factors = squares[torch.arange(len(matches)), matches.int().argmax(1), 0].sqrt()
    return factors[0].item() if torch.allclose(factors, factors[:1], rtol=PRECISION) else None
