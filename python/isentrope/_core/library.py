"""Loads the operators' library, translates its errors, and reads its lists of arguments and statistics."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch

from isentrope._core.libraries import name_in_python, path_of

torch.ops.load_library(str(path_of("isentrope_operators")))
OPS = torch.ops.isentrope
KERNELS = torch.library.Library("isentrope", "IMPL")  # kept alive, because the registrations of kernels end with it

# Beginning of the library's refusals, RuntimeErrors from torch 2.15 on: [attention] k must ...; got ... Failures of torch
# itself begin with [isentrope].
_REFUSAL = re.compile(r"\[(?!isentrope\])\w+\] ")


def refuse_arguments(arguments: Iterable[tuple[str, Any]]) -> None:
    """Raises ValueError if torch could not convert an argument of a failed call, whatever its error says. Checked after
    a failure only, because checking before would slow every call."""
    for name, value in arguments:
        if isinstance(value, torch.Tensor) and (how := _nondense_layout(value)):
            raise ValueError(
                f"[attention] {name} must be a dense tensor; got one that is {how}: use x.to_dense(), x.dequantize(), "
                "torch.nested.to_padded_tensor(x, 0) with key_end, or layout=torch.jagged for q, k and v of attention"
            ) from None
        if isinstance(value, int) and not isinstance(DEFAULTS.get(name), float) and not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"[attention] {name} must be an integer of 64 bits; got {str(value)[:100]}") from None
        if isinstance(value, str) and value.encode(errors="ignore").decode() != value:
            raise ValueError(f"[attention] {name} must be text without surrogates; got {value[:100]!r}") from None


def _nondense_layout(tensor: torch.Tensor) -> str:
    if tensor.is_nested:
        return "nested"
    if tensor.is_quantized:
        return "quantized"
    return "" if tensor.layout is torch.strided else str(tensor.layout).removeprefix("torch.")


def checked(operator: Any, context: Any = nullcontext, names: Iterable[str] = ()) -> Any:
    def call(*args: Any) -> Any:
        try:
            with context():
                return operator(*args)
        except (OverflowError, RuntimeError) as error:
            if type(error) is not RuntimeError or not _REFUSAL.match(str(error)):
                refuse_arguments(zip(names or ("q", "k", "v", *DEFAULTS), args))
                raise
            raise ValueError(str(error)) from None

    return call


def below_autograd(operator: Any) -> Any:
    """Returns the operator bypassing its Python registrations, for calls that need no autograd. This saves a third of
    the time of a call on one query. The dispatcher still handles lazy negation, modes, traces and profilers."""
    # The C++ handle, private to torch, saves a Python call.
    return checked(getattr(operator, "_op", operator), torch._C._AutoDispatchBelowAutograd)


_NAMES = (
    "attention", "attention_backward", "attention_tangent", "attention_second_order", "decode", "decode_codes",
    "decode_received", "received", "received_paged", "weights_at", "weights_at_paged", "quantize", "write_cache",
    "row_lengths", "keys_seen", "check_call",
    "model_scale", "rule_text",
    "rule_lambda", "rule_to_json", "rule_from_json", "rule_heads", "rule_of_heads", "rule_reads_length",
    "rule_reads_position", "rule_table",
)  # fmt: skip
# Operators that raise ValueErrors under every torch version. Compiled calls raise torch's own errors.
_FIRST_NAMES = {name: ("rule",) for name in _NAMES if name.startswith("rule_")} | {"quantize": ("rows", "groups")}
CHECKED = SimpleNamespace(
    **{name: checked(getattr(OPS, name).default, names=_FIRST_NAMES.get(name, ())) for name in _NAMES}
)

# Arguments of all operators but q, k and v, tensors first: name, default, a tensor's "axes", whether part of masks.
ARGUMENTS: list[dict[str, Any]] = json.loads(OPS.call_arguments())
DEFAULTS: dict[str, Any] = {argument["name"]: argument["default"] for argument in ARGUMENTS}
AXES: dict[str, list[str]] = {argument["name"]: argument["axes"] for argument in ARGUMENTS}
_ROWS = ["batch", "heads"]
_OF_ROWS = (
    "q", "k", "v", "output", "support", "t_q", "t_k", "t_v", "t_bias", "t_lambda", "u_q", "u_k", "u_v", "u_bias",
    "u_lambda", "t_output", "d_output", "dq", "dk", "dv",
    "d_bias", "d_lambda", "lse", "weights", "keys", "by_score", "by_bias",
)  # fmt: skip
# First axes of the tensors in the operators' schemas, for batching and sharding.
TENSOR_AXES: dict[str, list[str]] = AXES | {
    **dict.fromkeys(_OF_ROWS, _ROWS),
    **dict.fromkeys(("statistics", "t_statistics", "d_statistics"), ["statistic", *_ROWS]),
    **dict.fromkeys(("block_table", "seqused_k"), ["batch"]),
    **dict.fromkeys(("t_sinks", "u_sinks", "d_sinks"), ["heads"]),
    "cu_seq_q": [],
}

# The library's list of statistics, in the order of the bits of the argument `wanted`. The last one counts.
# include/isentrope/statistics.h documents the members.
STATISTICS: list[dict[str, Any]] = [s | {"name": name_in_python(s["name"])} for s in json.loads(OPS.statistics())]
BITS = {statistic["name"]: 1 << index for index, statistic in enumerate(STATISTICS)}
SUPPORT = BITS["support"]
# Bits of each statistic and of what its gradient needs, which a forward pass therefore saves.
WITH_NEEDS = {
    s["name"]: BITS[s["name"]] | sum(BITS[name] for name in s["needs"] if name != s["name"]) for s in STATISTICS
}
LSE = BITS["lse"]  # needed by every backward pass


def refuse_unknown(who: str, what: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raises ImportError for names of the library that `who` does not know, which would be silently ignored."""
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ImportError(f"{who} must know every {what}; got {', '.join(unknown)}")
