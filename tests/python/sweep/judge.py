"""Judges an architecture: isentrope's attention against the eager one, in every case that the model has."""

from __future__ import annotations

import re
import warnings
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import isentrope.hf  # noqa: F401  # so that transformers knows the attention by its name
from sweep.cases import CASES, results, sharpen
from sweep.inputs import inputs_of
from sweep.keyless import NAME as BUT_FOR_KEYLESS_ROWS
from sweep.scale import AGREES, NOT_KNOWN, NOT_MEASURED, compare, measured_calls
from sweep.tiny import tiny

TOLERANCE = 5e-5  # of the largest value: eager and fused sums of float32 differ by 1e-6 and grow through two sharp layers
KEYLESS = "rows that see no key are 0, as in every fused attention; eager takes a mean there, and others depend on them:"
EAGER_RAISES = "eager raises"
# Families that read every mask as a boolean one. They call logical_not on it.
TURNS_MASKS = {"gemma4_audio", "nemotron_asr_streaming", "nemotron_asr_streaming_encoder", "nemotron3_5_asr"}
AS_SDPA = "as under sdpa; the model turns the additive mask of eager round:"
MAPPINGS = ("MODEL_FOR_CAUSAL_LM_MAPPING", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING", "MODEL_MAPPING")


def architectures() -> list[str]:
    """Model types of the installed transformers."""
    return list(CONFIG_MAPPING)


def classes_of(config: Any) -> list[type[nn.Module]]:
    """The class that decodes, if there is one, and the base class; none for a part of a model."""
    classes = [getattr(modeling_auto, name).get(type(config), None) for name in MAPPINGS]
    return [kinds[0] if isinstance(kinds, tuple) else kinds for kinds in classes if kinds is not None]


def build(name: str, attention: str, **keys: Any) -> nn.Module | None:
    """A tiny model with random weights, which depend on nothing but its shapes; None for a part of a model.

    Its class is the first that can be made: one that decodes text does not take the configuration of a model of images.
    """
    config = tiny(CONFIG_MAPPING[name](**keys))
    kinds = classes_of(config)
    for kind in kinds:
        torch.manual_seed(3)
        try:
            model = kind._from_config(config, attn_implementation=attention).eval()
        except AttributeError:
            if kind is kinds[-1]:
                raise
            continue
        torch.manual_seed(5)
        sharpen(model)
        return model
    return None


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


def judge(name: str) -> dict[str, Any]:
    """Returns the verdict of one architecture: {"verdict": ..., "why": ..., "class": ..., "cases": {case: error or words},
    "scale": what `compare` says}.

    Verdicts: "right"; "right but for padding", if a case differs by rows that see no key alone; "wrong"; "refused", if isentrope raises ValueError that names eager as the way out; "part", for a
    configuration without a model class; "no attention", if the model calls none of transformers' interface and no case
    differs; "not made",
    with the reason, if the tiny model or its inputs cannot be made or eager fails itself.
    """
    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore")
    try:
        eager = build(name, "eager")
        if eager is None:
            return {"verdict": "part"}
        inputs = inputs_of(eager)
        if inputs is None:
            return {"verdict": "not made", "why": "inputs of this kind", "class": type(eager).__name__}
    except Exception as error:
        return {"verdict": "not made", "why": words(error)}
    verdict: dict[str, Any] = {"class": type(eager).__name__, "cases": {}}
    wanted = dict(results(eager, inputs))
    if isinstance(wanted["plain"], Exception):
        return verdict | {"verdict": "not made", "why": "eager: " + words(wanted["plain"])}
    try:
        ours = build(name, "isentrope")
    except ValueError as error:
        return verdict | {"verdict": "refused" if "eager" in str(error) else "wrong", "why": words(error)}
    calls = measured_calls(ours, inputs)
    for case, got in results(ours, inputs):
        want = wanted[case]
        if want is None:
            continue  # the model has no such case
        if isinstance(want, Exception):
            verdict["cases"][case] = f"{EAGER_RAISES} {words(want)}"
            continue
        error = outcome(got, want)
        if isinstance(error, float) and error > TOLERANCE:
            error = min(error, error_in_float64(name, case, got, inputs))
        if isinstance(error, float) and error > TOLERANCE and agrees(name, BUT_FOR_KEYLESS_ROWS, case, got, inputs):
            error = f"{KEYLESS} {error:.0e}"  # such rows of padding may reach others
        if isinstance(error, float) and error > TOLERANCE and name in TURNS_MASKS and agrees(name, "sdpa", case, got, inputs):
            error = f"{AS_SDPA} {error:.0e}"
        verdict["cases"][case] = error
    # An attention of the model's own adds a boolean mask, as it does under eager, which got the additive one here.
    others = {case: error for case, error in verdict["cases"].items() if case != "bool mask"}
    if not calls and verdict_of(others, None)["verdict"] != "wrong":
        return {"verdict": "no attention", "class": verdict["class"]}
    if scale := compare(ours, calls):
        verdict["scale"] = scale
    return verdict | verdict_of(verdict["cases"], scale)


def error_in_float64(name: str, case: str, got: Tensor, inputs: dict[str, Tensor]) -> float:
    """The difference from the eager attention in float64: in float32 eager's own error may be larger than the tolerance. So it
    is with the gradient of MobileBERT, 9.4e-5 on a CPU with AVX-512."""
    try:
        exact = {key: x.double() if x.is_floating_point() else x for key, x in inputs.items()}
        want = CASES[case](build(name, "eager").double(), exact)
    except Exception:
        return float("inf")
    return float("inf") if want is None else error_of(got.to(want.dtype), want)


def agrees(name: str, attention: str, case: str, got: Tensor, inputs: dict[str, Tensor]) -> bool:
    """Whether another attention of transformers gives the same."""
    try:
        want = CASES[case](build(name, attention), inputs)
    except Exception:
        return False
    return want is not None and error_of(got, want) <= TOLERANCE


def outcome(got: Tensor | Exception | None, want: Tensor) -> float | str:
    """The error of a case, or words: what was refused, what was raised, or that nothing came back."""
    if isinstance(got, ValueError) and "eager" in str(got):
        return "refused: " + words(got)
    return words(got) if isinstance(got, Exception) else "nothing" if got is None else error_of(got, want)


def verdict_of(cases: dict[str, float | str], scale: str | None) -> dict[str, str]:
    """Right unless a case has a large error, other words or another scale; refused if the plain case is."""
    wrong = {case: x for case, x in cases.items()
             if (x > TOLERANCE if isinstance(x, float) else not x.startswith(("refused", KEYLESS, EAGER_RAISES, AS_SDPA)))}  # fmt: skip
    if scale and not scale.startswith((AGREES, NOT_KNOWN, NOT_MEASURED)):
        wrong["scale"] = scale
    if wrong:
        return {"verdict": "wrong", "why": "; ".join(f"{case}: {x if isinstance(x, str) else format(x, '.1e')}" for case, x in wrong.items())}
    if isinstance(cases["plain"], str) and cases["plain"].startswith("refused"):
        return {"verdict": "refused", "why": cases["plain"]}
    notes = sorted({f"{case}: {x}" for case, x in cases.items()
                    if isinstance(x, str) and case != "attention weights" and not x.startswith(EAGER_RAISES)})
    verdict = "right but for padding" if any(KEYLESS in note for note in notes) else "right"
    return {"verdict": verdict, "why": "; ".join(notes)} if notes else {"verdict": verdict}


def words(error: Exception) -> str:
    """Returns the error's type and the beginning of its message, without paths of modules on this machine."""
    message = re.sub(" from '/[^']*'", "", " ".join(str(error).split()))
    return f"{type(error).__name__}: {message[:200]}"
