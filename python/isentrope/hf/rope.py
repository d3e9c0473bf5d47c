"""Rotary position embeddings of transformers models, stretched so that longer inputs fit."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from isentrope._core.values import check_choice, shown

SWITCHED = "isentrope_rope"
"""Key of config.json: the `rope_parameters` that a switched stretch has beyond the trained length."""
KINDS = ("linear", "dynamic", "ntk", "yarn", "llama3", "longrope", "proportional")


class Stretch(NamedTuple):
    """Stretch of RoPE: `parameters` are those of a configuration's `rope_parameters`, without `rope_theta`.

    None of them scales the logits: `attention_factor` is 1 for kinds with a factor of their own, so that gains are
    chosen separately from frequencies.
    """

    kind: str
    factor: float
    parameters: dict[str, Any]

    @property
    def text(self) -> str:
        return "none" if self.kind == "none" else f"{self.kind}:{self.factor:g}"


NO_STRETCH = Stretch("none", 1.0, {})


def parse(text: str) -> Stretch:
    """Parses `KIND:FACTOR` with the kinds linear, dynamic, ntk and yarn, "none", or the JSON of any `rope_parameters`.

    Raises ValueError that names what is required and what was passed.
    """
    if text == "none":
        return NO_STRETCH
    if text.startswith("{"):
        return _from_json(text)
    kind, _, number = text.partition(":")
    if kind not in ("linear", "dynamic", "ntk", "yarn"):
        raise ValueError(
            "[rope] the stretch must be none, linear:S, dynamic:S, ntk:S, yarn:S or a JSON object of rope_parameters; "
            f"got {shown(text)}"
        )
    try:
        factor = float(number)
    except ValueError:
        factor = math.nan
    if not (math.isfinite(factor) and factor >= 1):
        raise ValueError(f"[rope] the factor of {kind} must be a number of at least 1; got {shown(number)}")
    parameters: dict[str, Any] = {"rope_type": kind, "factor": factor}
    if kind == "yarn":
        parameters["attention_factor"] = 1.0
    return Stretch(kind, factor, parameters)


def _from_json(text: str) -> Stretch:
    try:
        parameters = json.loads(text)
        kind, value = parameters["rope_type"], parameters.get("factor")
        factor = 1.0 if value is None else float(value)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"[rope] a JSON object must be rope_parameters with rope_type; got {shown(text)}") from error
    check_choice("rope", "rope_type", kind, KINDS)
    if isinstance(value, (bool, str)) or not (math.isfinite(factor) and factor >= 1):
        raise ValueError(f"[rope] the factor of {kind} must be a number of at least 1; got {value!r}")
    if kind in ("yarn", "longrope"):
        parameters["attention_factor"] = 1.0
    return Stretch(kind, factor, parameters)


def trained_length(model: nn.Module) -> int:
    """Returns the trained length in tokens, before any stretch. Raises ValueError if the configuration does not say."""
    config = model.config.get_text_config()
    for parameters in _each(config):
        if known := parameters.get("original_max_position_embeddings"):
            return int(known)
    known = getattr(config, "max_position_embeddings", None)
    if not known:
        raise ValueError("[rope] the model's configuration must have max_position_embeddings; got none")
    return int(known)


def _each(config: Any) -> list[dict[str, Any]]:
    """Returns the parameters of every kind of layer; one entry if all layers share theirs."""
    parameters = getattr(config, "rope_parameters", None) or {}
    nested = [value for value in parameters.values() if isinstance(value, dict)]
    return nested or [parameters]


def _stretched_parameters(config: Any, stretch: Stretch, trained: int) -> dict[str, Any]:
    """Returns the configuration's rope_parameters with the stretch. Layers with a window, which see no distance beyond
    training, keep theirs if the configuration has one for each kind of layer; else all share the stretch."""

    def of_layer(own: dict[str, Any]) -> dict[str, Any]:
        if own.get("rope_type", "default") != "default":
            raise ValueError(
                f"[rope] the model must not stretch RoPE already; got rope_type {own['rope_type']!r}"
            )
        changed = own | stretch.parameters
        if stretch.kind == "ntk":
            head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
            dim = int(head_dim * own.get("partial_rotary_factor", 1.0))
            changed |= {"rope_type": "default", "rope_theta": own["rope_theta"] * stretch.factor ** (dim / (dim - 2))}
            changed.pop("factor", None)
        if stretch.kind in ("yarn", "longrope", "llama3"):
            changed.setdefault("original_max_position_embeddings", trained)
        return changed

    parameters = copy.deepcopy(config.rope_parameters)
    if not any(isinstance(value, dict) for value in parameters.values()):
        return of_layer(parameters)
    return {name: own if "sliding" in name else of_layer(own) for name, own in parameters.items()}


def _rotaries(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """Returns parent and name of every module that computes the angles."""
    rotaries = [
        (parent, name)
        for parent in model.modules()
        for name, child in parent.named_children()
        if hasattr(child, "rope_type") and hasattr(child, "config") and not isinstance(parent, SwitchedRope)
    ]
    if not rotaries:
        raise ValueError(
            f"[rope] the model must have rotary position embeddings of transformers; got {type(model).__name__}"
        )
    return rotaries


def rotaries_by_length(model: nn.Module) -> list[nn.Module]:
    """Returns the modules whose angles depend on the largest position of an input."""

    def by_length(module: nn.Module) -> bool:
        kinds = getattr(module, "rope_type", None)
        kinds = kinds.values() if isinstance(kinds, dict) else [kinds]
        return any(kind == "longrope" or "dynamic" in (kind or "") for kind in kinds)

    switched = [module for module in model.modules() if isinstance(module, SwitchedRope)]
    children = [child for module in switched for child in module.children()]
    return switched + [module for module in model.modules() if by_length(module) and module not in children]


class SwitchedRope(nn.Module):
    """Uses the model's own angles up to the trained length and stretched ones beyond it, like transformers' `longrope`.

    The largest position of the whole input decides. A cache that grows across the trained length therefore holds keys
    of both kinds, as in transformers.
    """

    def __init__(self, original: nn.Module, stretched: nn.Module, trained: int) -> None:
        super().__init__()
        self.original, self.stretched, self.trained = original, stretched, trained

    def forward(self, x: Tensor, position_ids: Tensor, *args: Any, **options: Any) -> Any:
        beyond = position_ids.max() >= self.trained
        return (self.stretched if beyond else self.original)(x, position_ids, *args, **options)


def at_position(module: nn.Module, farthest: Callable[[Tensor], Tensor]) -> None:
    """Makes a module compute the angles that its rows have in an input that reaches to farthest(position_ids). Some angles
    depend on that: of `dynamic`, of `longrope` and of a switched stretch."""

    def longer(positions: Tensor) -> Tensor:
        return torch.cat([positions, farthest(positions).expand(*positions.shape[:-1], 1)], dim=-1)

    def before(_: nn.Module, args: tuple, inputs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        if "position_ids" in inputs:
            return args, inputs | {"position_ids": longer(inputs["position_ids"])}
        return (args[0], longer(args[1]), *args[2:]), inputs

    def after(_: nn.Module, __: tuple, angles: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
        if isinstance(angles, Tensor):  # complex numbers
            return angles[..., :-1, :]
        return tuple(x[..., :-1, :] for x in angles)

    module.register_forward_pre_hook(before, with_kwargs=True)
    module.register_forward_hook(after)


def stretch_rope(model: nn.Module, stretch: Stretch, *, switched: bool = False) -> None:
    """Stretches the model's RoPE at every length, or with `switched` only beyond the trained length.

    The parameters are stored in the model's configuration, those of a switched stretch under `isentrope_rope`, and
    `save_pretrained` saves them. Raises ValueError if the model has no RoPE or is already stretched.
    """
    if stretch.kind == "none":
        return
    config, trained = model.config.get_text_config(), trained_length(model)
    rotaries = _rotaries(model)
    changed = copy.deepcopy(config)
    changed.rope_parameters = _stretched_parameters(config, stretch, trained)
    owns = [getattr(parent, name) for parent, name in rotaries]
    try:
        news = [type(own)(changed).to(next(own.buffers()).device) for own in owns]
    except Exception as error:  # transformers checks a stretch when it uses it, and raises errors of many types
        raise ValueError(
            f"[rope] transformers must take the parameters; got {stretch.parameters}, {type(error).__name__}: {error}"
        ) from error
    for (parent, name), own, new in zip(rotaries, owns, news):
        setattr(parent, name, SwitchedRope(own, new, trained) if switched else new)
    if switched:
        setattr(model.config, SWITCHED, stretch.parameters)
    else:
        config.rope_parameters = changed.rope_parameters


def stretch_as_saved(model: nn.Module) -> None:
    """Switches the RoPE of a loaded model as it was when it was saved."""
    parameters = getattr(model.config, SWITCHED, None)
    if parameters is None:
        return
    try:
        stretch = _from_json(json.dumps(parameters))
    except ValueError as error:
        raise ValueError(f"[isentrope.hf] {SWITCHED} of the configuration must be rope_parameters; got {parameters!r}") from error
    stretch_rope(model, stretch, switched=True)


@contextmanager
def stretched(model: nn.Module, stretch: Stretch, *, at_length: int | None = None) -> Iterator[None]:
    """Stretches the model's RoPE inside the block, and restores the model's own.

    at_length: reads every input with the angles of that many tokens, if these depend on the length.
    """
    config = model.config.get_text_config()
    before = copy.deepcopy(getattr(config, "rope_parameters", None))
    own = [] if stretch.kind == "none" else [(parent, name, getattr(parent, name)) for parent, name in _rotaries(model)]
    try:
        stretch_rope(model, stretch)
        if at_length is not None and rotaries_by_length(model):
            for parent, name, _ in own:
                at_position(getattr(parent, name), lambda positions: positions.new_tensor(at_length - 1))
        yield
    finally:
        for parent, name, module in own:
            setattr(parent, name, module)
        if own:
            config.rope_parameters = before


def yarn_attention_factor(factor: float) -> float:
    """Returns YaRN's factor on cosines and sines, 0.1 ln factor + 1 (Peng et al. 2023, eq. 22)."""
    return 0.1 * math.log(factor) + 1 if factor > 1 else 1.0
