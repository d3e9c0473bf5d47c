"""isentrope as an attention of transformers.

    import isentrope.hf
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="isentrope")
    isentrope.hf.set_rule(model, "logn(2048)")

Importing this module registers the attention and its masks under that name. transformers does not save the choice
with a model: name it again at every `from_pretrained`. The rule is saved, in the configuration, and taken up there.
docs/transformers.md has what a mask means for n.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

try:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        "isentrope.hf needs transformers 5.18 or later: pip install transformers", name="transformers"
    ) from _error

from isentrope import _positions, _saved_rules
from isentrope._arguments import call_of
from isentrope._operators import CHECKED
from isentrope._row_masks import RowMask, row_mask
from isentrope.functions import StatisticNames, _attend
from isentrope.rope import stretch_as_saved
from isentrope.rules import ScaleRule, rule_text
from isentrope.statistics import Statistics

NAME = "isentrope"
CONTEXT_PARALLEL = "isentrope_context_parallel"
# What set_rule() leaves on a module: the rule, and whether it asks for more than the number of keys.
_RULE, _READS_POSITION = "isentrope_rule", "isentrope_rule_reads_position"


class Record(NamedTuple):
    """One call of one attention: the module, and the statistics that `record` was asked for."""

    module: nn.Module
    statistics: Statistics


class _Recording(NamedTuple):
    wanted: tuple[str, ...]
    records: list[Record]


_recording: _Recording | None = None


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    sliding_window: int | None = None,
    position_ids: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """What transformers calls: query [batch, heads, queries, dim], output [batch, queries, heads, dim].

    `dropout` is that of the weights, after the statistics. Raises ValueError for a rule of the position where the
    architecture does not tell it.
    """
    causal, options = asked(module, scaling, is_causal, softcap, s_aux)
    options["dropout_p"] = dropout
    rows: dict[str, Any] | None = None
    if isinstance(attention_mask, RowMask):
        whole = attention_mask.shape[2:] == (query.shape[2], key.shape[2])
        rows, attention_mask = (attention_mask.arguments, None) if whole else (None, attention_mask.dense())
    mask, bias = _mask_and_bias(attention_mask, position_bias, key.shape[2])
    if rows is None and mask is None and causal:
        if query.shape[2] > 1 and key.shape[2] > query.shape[2]:
            # The first fill of a static cache: what lies behind the queries is not there yet.
            key, value = key[:, :, : query.shape[2]], value[:, :, : query.shape[2]]
        options["causal"] = "bottom_right"

    def attend(wanted: StatisticNames) -> Any:
        if rows is not None:
            return _attend(call_of(query, key, value, bias=bias, **options, **rows), wanted)
        if getattr(module, _READS_POSITION, False):
            windowed = sliding_window is not None or layer_type(module) not in (None, "full_attention")
            return _positions.attend(
                query, key, value, mask, bias, position_ids, windowed, return_stats=wanted, **options
            )
        return _attend(call_of(query, key, value, bias=bias, attn_mask=mask, **options), wanted)

    return answer(module, attend)


def asked(
    module: nn.Module, scaling: float | None, is_causal: bool | None, softcap: float | None, s_aux: Tensor | None
) -> tuple[bool, dict[str, Any]]:
    """Of what transformers passes: whether the attention is causal, and what scales the logits."""
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    rule = getattr(module, _RULE, "standard")
    return causal, {"rule": rule, "scale": scaling, "soft_cap": softcap or 0.0, "sinks": s_aux}


def answer(module: nn.Module, attend: Callable[[StatisticNames], Any]) -> tuple[Tensor, None]:
    """What transformers takes from `attend`, whose statistics go to the recording that is under way."""
    recording = None if torch.compiler.is_compiling() else _recording
    result = attend(recording.wanted if recording else False)
    if recording:
        result, statistics = result
        recording.records.append(Record(module, statistics))
    return result.transpose(1, 2), None


def layer_type(module: nn.Module) -> str | None:
    """"full_attention", "sliding_attention", "chunked_attention", ...; None where the configuration tells none.

    The caches of all but the first drop the keys that are out of reach.
    """
    kinds = getattr(getattr(module, "config", None), "layer_types", None)
    return kinds[module.layer_idx] if kinds else None


def _mask_and_bias(mask: Tensor | None, bias: Tensor | None, keys: int) -> tuple[Tensor | None, Tensor | None]:
    """Masks of the library are boolean; a caller's own may be added to the logits, hidden keys being very low."""
    if mask is None or mask.dtype == torch.bool:
        return None if mask is None else mask[..., :keys], bias
    mask = mask[..., :keys]
    seen = mask > torch.finfo(mask.dtype).min / 2
    added = torch.where(seen, mask, 0)
    return seen, added if bias is None else added + bias


AttentionInterface.register(NAME, attention_forward)
# Without masks of its own an attention gets none at all, and padding would be seen.
AttentionMaskInterface.register(NAME, row_mask)


def attentions(model: nn.Module) -> list[nn.Module]:
    """The modules that compute attention, in the order of the layers. ValueError unless they use isentrope."""
    used = getattr(model.config, "_attn_implementation", None)
    if used not in (NAME, CONTEXT_PARALLEL):
        raise ValueError(
            f'[isentrope.hf] the model must use attn_implementation="{NAME}"; got {used!r}, '
            "which it keeps where its architecture has no exchangeable attention"
        )
    named = [m for m in model.modules() if "Attention" in type(m).__name__]
    found = [m for m in named if not any("Attention" in type(c).__name__ for c in m.modules() if c is not m)]
    if not found:
        raise ValueError(f"[isentrope.hf] the model must have attention modules; got {type(model).__name__}")
    return found


class ModelRule(NamedTuple):
    """What a model's configuration says about its scale."""

    rule: ScaleRule
    layers: str
    """Which layers it acts on: "all", "without rotary embedding", "global"."""
    keys: list[str]
    """The keys of the configuration that decided."""
    notes: list[str]
    by_length: bool
    """Whether the model answers longer inputs with another scale already."""


def model_rule(model: nn.Module) -> ModelRule:
    """The rule the model came with, from its configuration. Raises ValueError where that has impossible values."""
    config = model.config.get_text_config()
    found = json.loads(CHECKED.model_scale(json.dumps(config.to_dict(), default=str)))
    rule = ScaleRule(found["rule"])
    stretched = any("rope_type" in key or key.endswith(".type") for key in found["keys"])
    grows = rule.lambda_(64, 64) != rule.lambda_(1 << 24, 64)
    return ModelRule(rule, found["layers"], found["keys"], found["notes"], grows or stretched)


def _indices(layers: Iterable[int]) -> list[int]:
    chosen = list(layers) if isinstance(layers, Iterable) else [None]
    if not all(isinstance(index, int) for index in chosen):
        raise TypeError(f"[set_rule] layers must be indices, such as [0, 2]; got {layers!r}")
    return chosen


def set_rule(
    model: nn.Module, rule: str | ScaleRule | None, layers: Iterable[int] | None = None, force: bool = False
) -> None:
    """Gives all layers, or those of the indices `layers`, a rule; None takes it away again.

    `save_pretrained` keeps the rule, as `isentrope_rule` in config.json, and `from_pretrained` gives it back.

    The model's own softmax scale takes the place of the rule's 1/sqrt(d): the rule brings its growth with n, where
    n counts the keys a row sees, padding excluded.

    Raises ValueError when the model does not use isentrope, when there is no such layer, when the rule is none, or
    when the model scales by length already (Llama 4, Ministral 3, YaRN, ...) and `force` is not given; TypeError
    when `layers` are not indices.
    """
    found = attentions(model)
    chosen = range(len(found)) if layers is None else _indices(layers)
    for index in chosen:
        if not 0 <= index < len(found):
            raise ValueError(f"[set_rule] layers must be at least 0 and below {len(found)}; got {index}")
    if rule is not None:
        rule = rule if isinstance(rule, ScaleRule) else ScaleRule(rule)
        CHECKED.rule_text(rule_text(rule, 1.0))  # a rule that brings a scale of its own cannot take the model's
        own = model_rule(model)
        if own.by_length and not force:
            raise ValueError(
                f"[set_rule] the model must not scale by length already; got {own.rule.text!r} from "
                f"{', '.join(own.keys)} (force=True applies both)"
            )
    for index in chosen:
        setattr(found[index], _RULE, rule or "standard")
        setattr(found[index], _READS_POSITION, rule is not None and CHECKED.rule_reads_position(rule.text))
    rules = (getattr(module, _RULE, "standard") for module in found)
    _saved_rules.keep(model, [None if rule == "standard" else rule.text for rule in rules])


def _take_up(model: nn.Module) -> None:
    """The rules, and the stretch of RoPE, that a model was saved with, where it is loaded."""
    rules = _saved_rules.kept(model)
    used = getattr(model.config, "_attn_implementation", None)
    if rules and used != NAME:
        warnings.warn(
            f'[isentrope.hf] the model was saved with the rule {", ".join(rules)}, which acts under '
            f'attn_implementation="{NAME}" alone; got {used!r}',
            stacklevel=3,
        )
        return
    for rule, layers in rules.items():
        set_rule(model, rule, layers, force=True)  # as whoever saved it decided
    if used == NAME:
        stretch_as_saved(model)


_saved_rules.take_up_after_loading(_take_up)


@contextmanager
def reading(model: nn.Module) -> Iterator[None]:
    """Inside the block the model has isentrope's attention and is in evaluation mode; then its own attention and mode again."""
    attention, training = model.config._attn_implementation, model.training
    try:
        model.set_attn_implementation(NAME)
        model.eval()
        yield
    finally:
        model.set_attn_implementation(attention)
        model.train(training)


@contextmanager
def record(*wanted: str) -> Iterator[list[Record]]:
    """Collects statistics of every attention that runs inside the block, except in compiled models.

        with isentrope.hf.record("entropy", "support") as records:
            model(**inputs)

    Raises RuntimeError inside another one.
    """
    global _recording
    if _recording is not None:
        raise RuntimeError("[record] a recording must not be under way already; got a second one")
    _recording = _Recording(wanted, [])
    try:
        yield _recording.records
    finally:
        _recording = None


def apply(model: nn.Module, calibration: Any, *, always: bool = False) -> None:
    """`isentrope.calibration.apply`: RoPE and rule of a calibration, or of the file it was written to."""
    from isentrope.calibration import apply as run

    run(model, calibration, always=always)


def context_parallel(model: nn.Module, mesh: Any, method: str = "ring", layout: str = "zigzag") -> None:
    """Spreads every sequence the model is given over the ranks of `mesh`: a process group, or one dimension of a mesh.

    All ranks call the model with the same whole inputs. Each computes its own rows, which are what it returns
    (`isentrope.distributed.gather` puts them together), and the loss of the whole sequence. The gradients of the
    weights are those of one process once they are averaged over the ranks, as FSDP and DDP do. attention_mask may leave
    one range of keys in each row; position_ids that begin again are those of packed documents.

    method, layout: as in `isentrope.distributed.attention`. For one call at a time, without a cache. ValueError where
    an attention has what the ways of computing it know nothing of: a mask or a position bias of its own.
    """
    from isentrope.distributed import models

    models.context_parallel(model, mesh, method, layout)
