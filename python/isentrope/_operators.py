"""The operators in the library, and what torch must know of them: shapes, gradients, batching, sharding."""

from __future__ import annotations

import json
import re
from collections import namedtuple
from collections.abc import Collection, Iterable
from contextlib import nullcontext
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import isentrope


def _library() -> Path:
    # An editable installation keeps sources and libraries apart: each folder of the package may have it.
    for folder in isentrope.__path__:
        path = Path(folder) / "libisentrope_operators.so"
        if path.exists():
            return path
    raise ImportError(f"isentrope: no libisentrope_operators.so in {list(isentrope.__path__)}; pip install . again")


torch.ops.load_library(str(_library()))
OPS = torch.ops.isentrope

# As all that the library refuses begins: [attention] k must ...; got ... Failures of torch itself are [isentrope] ...
_REFUSAL = re.compile(r"\[(?!isentrope\])\w+\] ")


def _is_refusal(error: RuntimeError) -> bool:
    """Whether the library threw it, as a ValueError: from torch 2.15 on all that C++ throws arrives as RuntimeError."""
    return type(error) is RuntimeError and _REFUSAL.match(str(error)) is not None


def _checked(operator: Any, within: Any = nullcontext) -> Any:
    def call(*args: Any) -> Any:
        try:
            with within():
                return operator(*args)
        except RuntimeError as error:
            if not _is_refusal(error):
                raise
            raise ValueError(str(error)) from None

    return call


_NAMES = (
    "attention", "attention_backward", "decode", "row_lengths", "check_call", "model_scale", "rule_text", "rule_lambda",
    "rule_to_json", "rule_from_json", "rule_reads_position", "rule_table",
)  # fmt: skip
# The operators with ValueErrors under every torch. Calls that torch compiled raise what it makes of them.
CHECKED = SimpleNamespace(**{name: _checked(getattr(OPS, name)) for name in _NAMES})

# The arguments that all operators share, by name, with their defaults: what the library lists, tensors first.
DEFAULTS: dict[str, Any] = json.loads(OPS.call_defaults())
Call = namedtuple("Call", ["q", "k", "v", *DEFAULTS], defaults=DEFAULTS.values())
SHARED = len(Call._fields)
TENSORS = 3 + sum(default is None for default in DEFAULTS.values())
# Those with gradients; the last three are computed where somebody wants them.
_DIFFERENTIABLE_AT = [Call._fields.index(name) for name in ("q", "k", "v", "bias", "lambda_", "sinks")]
_with_gradients = itemgetter(*_DIFFERENTIABLE_AT)

# What the library lists of each statistic, in the order of the bits of the argument `wanted`. The last one counts.
STATISTICS: list[dict[str, Any]] = json.loads(OPS.statistics())
BITS = {statistic["name"]: 1 << index for index, statistic in enumerate(STATISTICS)}
SUPPORT = BITS["support"]
# Of each, together with what its gradient takes up again, which a forward pass saves unasked.
WITH_NEEDS = {
    s["name"]: BITS[s["name"]] | sum(BITS[name] for name in s["needs"] if name != s["name"]) for s in STATISTICS
}
LSE = BITS["lse"]  # every backward pass needs it

FORWARD_MODE = "[attention] forward-mode derivatives are not implemented; use reverse mode"


def _on_device(name: str) -> Any:
    """The operator in Triton, which is loaded by the first call that needs it."""

    def run(*args: Any) -> Any:
        try:
            from isentrope.gpu.operators import implementation
        except ModuleNotFoundError as error:
            if error.name != "triton":
                raise
            raise ModuleNotFoundError(
                "[attention] tensors on a GPU need triton, which torch's builds for GPUs bring along; got an "
                "environment without: pip install triton, or move the call to the CPU",
                name="triton",
            ) from error
        return implementation(name)(*args)

    return run


# It registers as long as it lives.
_ON_DEVICES = torch.library.Library("isentrope", "IMPL")
for _name in ("attention", "attention_backward", "decode", "row_lengths"):
    for _key in ("CUDA", "XPU"):
        _ON_DEVICES.impl(_name, _on_device(_name), _key)


def _laid_out_as(like: Tensor, rows: Any, columns: Any) -> Tensor:
    """As the kernels lay out a result: heads inside rows where `like` has them there."""
    batch, heads = like.shape[:2]
    if like.stride(1) < like.stride(2):
        return like.new_empty((batch, rows, heads, columns)).transpose(1, 2)
    return like.new_empty((batch, heads, rows, columns))


def refuse_unknown(who: str, what: str, names: Iterable[str], known: Collection[str]) -> None:
    """ImportError for what the library has and `who` has not: it would be ignored without a word."""
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ImportError(f"{who} must know every {what}; got {', '.join(unknown)}")


def check_ranks(**tensors: Tensor) -> None:
    for name, tensor in tensors.items():
        if tensor.dim() != 4:
            raise ValueError(f"[attention] {name} must have 4 dimensions; got {tensor.dim()}")


def _of_statistics(q: Tensor) -> torch.dtype:
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def _results(q: Tensor, columns: Any, wanted: int) -> tuple[Tensor, Tensor, Tensor]:
    rows = q.shape[:3]
    count = (wanted & (SUPPORT - 1)).bit_count()
    support = rows if wanted & SUPPORT else (0,)
    return (
        _laid_out_as(q, q.shape[2], columns),
        q.new_empty((count, *rows), dtype=_of_statistics(q)),
        q.new_empty(support, dtype=torch.int64),
    )


@torch.library.register_fake("isentrope::attention")
def _(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = args[:3]
    check_ranks(q=q, k=k, v=v)
    return _results(q, v.shape[3], args[SHARED])


@torch.library.register_fake("isentrope::decode")
def _(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = args[:3]
    check_ranks(q=q, k=k, v=v)
    return _results(q, v.shape[3], args[SHARED + 2])


@torch.library.register_fake("isentrope::row_lengths")
def _(q: Tensor, *args: Any) -> Tensor:
    return q.new_empty(q.shape[:3], dtype=torch.int64)


@torch.library.register_fake("isentrope::attention_backward")
def _(*args: Any) -> tuple[Tensor, ...]:
    q, k, v = args[:3]
    return _gradient_results(q, k, v, *args[-3:])


def _gradient_results(
    q: Tensor, k: Tensor, v: Tensor, wants_bias: bool, wants_lambda: bool, wants_sinks: bool
) -> tuple[Tensor, ...]:
    def optional(want: bool, *shape: Any) -> Tensor:
        return q.new_empty(shape if want else (0,), dtype=_of_statistics(q))

    return (
        _laid_out_as(q, q.shape[2], q.shape[3]),
        _laid_out_as(k, k.shape[2], k.shape[3]),
        _laid_out_as(v, v.shape[2], v.shape[3]),
        optional(wants_bias, *q.shape[:3], k.shape[2]),
        optional(wants_lambda, *q.shape[:3]),
        optional(wants_sinks, q.shape[1]),
    )


def _save(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:TENSORS], output[0], output[1])
    ctx.numbers = inputs[TENSORS:]


def _gradients(ctx: Any, d_output: Tensor | None, d_statistics: Tensor | None, _: Any) -> tuple:
    """Of every argument of the schema."""
    found: list[Tensor | None] = [None] * (SHARED + 1)
    wants = [ctx.needs_input_grad[at] for at in _DIFFERENTIABLE_AT[3:]]
    for at, gradient in zip(_DIFFERENTIABLE_AT, _six_gradients(ctx, d_output, d_statistics, wants)):
        found[at] = gradient
    return tuple(found)


def _six_gradients(ctx: Any, d_output: Tensor | None, d_statistics: Tensor | None, wants: Any) -> tuple:
    """Of q, k, v, and of bias, lambda and sinks where they are wanted."""
    if d_output is None and d_statistics is None:
        return (None,) * 6
    if not ctx.numbers[-1] & LSE:
        raise ValueError(
            "[attention] backward needs a forward pass that was run, compiled or exported with gradients enabled; "
            "got one without"
        )
    *tensors, output, statistics = ctx.saved_tensors
    if d_statistics is not None:
        d_statistics = d_statistics.contiguous()
    arguments = (*tensors, *ctx.numbers, output, statistics, d_output, d_statistics, *wants)
    if torch._C._are_functorch_transforms_active():
        backward = TransformableBackward.apply
    elif torch.is_grad_enabled() or torch.compiler.is_compiling():
        backward = CHECKED.attention_backward
    else:
        backward = _attention_backward
    found = backward(*arguments)
    return found if all(wants) else (*found[:3], *(x if want else None for x, want in zip(found[3:], wants)))


def below_autograd(operator: Any) -> Any:
    """The operator where autograd has nothing to do, past what Python registers for it: a third of the time of a
    call on one query. The dispatcher stays: it knows of lazy negation, of modes, traces and profilers."""
    # The handle in C++, past a call in Python. It is private to torch.
    return _checked(getattr(operator, "_op", operator), torch._C._AutoDispatchBelowAutograd)


_attention = below_autograd(OPS.attention.default)
_attention_backward = below_autograd(OPS.attention_backward.default)


class _Differentiable(torch.autograd.Function):
    """Attention with gradients, in eager mode: the way of register_autograd through torch takes four times as long
    for a few rows. What has no gradient comes in one argument, for each costs a call of 16 rows 0.3 % of its time."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, Tensor, Tensor]:
        call = args[-1]
        results = _attention(*call)
        _save(ctx, call, results)
        return results

    @staticmethod
    def backward(ctx: Any, d_output: Tensor | None, d_statistics: Tensor | None, _: Any) -> tuple:
        return *_six_gradients(ctx, d_output, d_statistics, ctx.needs_input_grad[3:6]), None


# Past what Function.apply does for torch.func in Python, which is not at work here.
_apply = super(torch.autograd.Function, _Differentiable).apply


def differentiable(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _apply(*_with_gradients(args), args)


def requires_gradients(call: Call) -> bool:
    # All arguments, of which most are no tensors, take a microsecond more.
    return torch._C._any_requires_grad(*_with_gradients(call))


def _no_second_order(ctx: Any, *_: Any) -> tuple:
    raise NotImplementedError("[attention] double backward is not implemented; got create_graph=True")


torch.library.register_autograd("isentrope::attention", _gradients, setup_context=_save)
torch.library.register_autograd("isentrope::attention_backward", _no_second_order)


def _one_by_one(operator: Any) -> Any:
    """A batching rule: the operator once for each sample. Its calls are long enough for that."""

    def rule(info: Any, in_dims: tuple, *args: Any) -> tuple:
        def sample(index: int) -> list:
            return [
                arg if dim is None else arg.select(dim, index) for arg, dim in zip(args, in_dims, strict=True)
            ]

        results = [operator(*sample(index)) for index in range(info.batch_size)]
        if isinstance(results[0], Tensor):
            return torch.stack(results), 0
        return tuple(torch.stack(column) for column in zip(*results)), (0,) * len(results[0])

    return rule


for _name in ("attention", "attention_backward", "decode", "row_lengths"):
    torch.library.register_vmap(f"isentrope::{_name}", _one_by_one(getattr(OPS, _name).default))


class _Transformable(torch.autograd.Function):
    """An operator for torch.func and forward-mode, which do not see through register_autograd.

    There a forward-mode derivative would silently be zero: here it is an error.
    """

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple, *args: Any) -> tuple:
        return _one_by_one(cls.apply)(info, in_dims, *args)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> None:
        raise NotImplementedError(FORWARD_MODE)


class Transformable(_Transformable):
    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
        return CHECKED.attention(*args)

    setup_context = staticmethod(_save)
    backward = staticmethod(_gradients)


class TransformableBackward(_Transformable):
    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, ...]:
        return CHECKED.attention_backward(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
        pass

    backward = staticmethod(_no_second_order)
