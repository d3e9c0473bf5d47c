"""Judges an architecture: isentrope's attention against the eager one, in every case that the model has."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import isentrope.hf  # so that transformers knows the attention by its name
from sweep.cases import inputs_of, results, sharpen
from sweep.tiny import tiny

TOLERANCE = 5e-5  # of the largest value: eager and fused sums of float32 differ by 1e-6 and grow through two sharp layers
MAPPINGS = ("MODEL_FOR_CAUSAL_LM_MAPPING", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING", "MODEL_MAPPING")


def architectures() -> list[str]:
    """Model types of the installed transformers."""
    return list(CONFIG_MAPPING)


def class_of(config: Any) -> type[nn.Module] | None:
    """The class that decodes, if there is one; else the base class; None for a part of a model."""
    for name in MAPPINGS:
        found = getattr(modeling_auto, name).get(type(config), None)
        if found is not None:
            return found[0] if isinstance(found, tuple) else found
    return None


def build(name: str, attention: str, **given: Any) -> nn.Module | None:
    """A tiny model with random weights, which depend on nothing but its shapes; None for a part of a model."""
    config = tiny(CONFIG_MAPPING[name](), **given)
    kind = class_of(config)
    if kind is None:
        return None
    torch.manual_seed(3)
    model = kind._from_config(config, attn_implementation=attention).eval()
    torch.manual_seed(5)
    sharpen(model)
    return model


def error_of(got: Tensor, want: Tensor) -> float:
    """Largest difference, as a share of the largest value; infinite for other shapes or other NaN."""
    if got.shape != want.shape or not torch.equal(got.isnan(), want.isnan()):
        return float("inf")
    if want.numel() == 0:
        return 0.0
    if not want.is_floating_point():
        return (got != want).double().mean().item()
    scale = want.nan_to_num().abs().max().clamp(min=1e-30)
    return ((got - want).nan_to_num().abs().max() / scale).item()


def judge(name: str, **given: Any) -> dict[str, Any]:
    """Returns the verdict of one architecture: {"verdict": ..., "why": ..., "class": ..., "cases": {case: error or words}}.

    Verdicts: "right"; "wrong"; "refused", if isentrope raises ValueError that names eager as the way out; "part", for a
    configuration without a model class; "no attention", if the model calls none of transformers' interface; "not made",
    with the reason, if the tiny model or its inputs cannot be made or eager fails itself.
    """
    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore")
    try:
        eager = build(name, "eager", **given)
        if eager is None:
            return {"verdict": "part"}
        inputs = inputs_of(eager)
        if inputs is None:
            return {"verdict": "not made", "why": "inputs of this kind", "class": type(eager).__name__}
    except Exception as error:
        return {"verdict": "not made", "why": words(error)}
    found: dict[str, Any] = {"class": type(eager).__name__, "cases": {}}
    wanted = dict(results(eager, inputs))
    if isinstance(wanted["plain"], Exception):
        return found | {"verdict": "not made", "why": "eager: " + words(wanted["plain"])}
    try:
        ours = build(name, "isentrope", **given)
    except ValueError as error:
        return found | {"verdict": "refused" if "eager" in str(error) else "wrong", "why": words(error)}
    calls = count_calls(ours)
    for case, got in results(ours, inputs):
        want = wanted[case]
        if want is None or isinstance(want, Exception):
            continue  # eager has no such case
        found["cases"][case] = words(got) if isinstance(got, Exception) else error_of(got, want) if got is not None else "None"
    if not calls:
        return {"verdict": "no attention", "class": found["class"]}
    return found | verdict_of(found["cases"])


def count_calls(model: nn.Module) -> list[str]:
    """A list that grows by a name whenever one of the model's modules calls isentrope's attention."""
    from transformers import AttentionInterface

    calls: list[str] = []
    attend = isentrope.hf.register.attention_forward

    def counted(module: nn.Module, *arguments: Any, **options: Any) -> Any:
        calls.append(type(module).__name__)
        return attend(module, *arguments, **options)

    AttentionInterface.register("isentrope", counted)
    return calls


def verdict_of(cases: dict[str, Any]) -> dict[str, str]:
    wrong = {case: x for case, x in cases.items() if x == "None" or (isinstance(x, float) and x > TOLERANCE)
             or (isinstance(x, str) and 'eager' not in x)}  # fmt: skip
    if wrong:
        return {"verdict": "wrong", "why": "; ".join(f"{case}: {x if isinstance(x, str) else format(x, '.1e')}" for case, x in wrong.items())}
    refused = sorted({x for case, x in cases.items() if isinstance(x, str) and case != "attention weights"})
    if isinstance(cases.get("plain"), str):
        return {"verdict": "refused", "why": cases["plain"]}
    return {"verdict": "right", "why": "; ".join(refused)} if refused else {"verdict": "right"}


def words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
