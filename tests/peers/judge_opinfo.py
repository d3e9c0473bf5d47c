"""torch's OpInfo samples of scaled_dot_product_attention, through both drop-in replacements."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

import isentrope
from case import Case, installed, normalized_error

TITLE = f"OpInfo samples of torch {torch.__version__.partition('+')[0]}"
# Relative errors that are always allowed, also for gradients of saturated rows.
ALLOWED = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}
SEEDS = 64
"""Calls that the mean of a sample with dropout is taken over."""


def cases(folder: Path) -> Iterator[Case]:
    installed(folder, "expecttest")
    from torch.testing._internal.common_methods_invocations import op_db

    op = next(x for x in op_db if x.name == "nn.functional.scaled_dot_product_attention")
    own = torch.nn.functional.scaled_dot_product_attention
    doors = {"activate": (own, isentrope.sdpa.activate), "drop_in": (isentrope.scaled_dot_product_attention, contextlib.nullcontext)}
    for name, door in doors.items():
        for dtype in ALLOWED:
            for index, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=True)):
                yield Case(f"{name} {dtype} {index}", functools.partial(check, *door, sample))


def check(function: Callable, active: Callable, sample) -> None:
    tensors = (sample.input, *sample.args)
    options = dict(sample.kwargs)
    dropout = options.pop("dropout_p")
    exact = tuple(x.detach().double().requires_grad_() for x in tensors)
    exact_options = {k: x.detach().double().requires_grad_() if isinstance(x, torch.Tensor) else x for k, x in options.items()}
    want = results(torch.nn.functional.scaled_dot_product_attention, exact, exact_options)
    fused = results(in_four_dimensions, tensors, options)
    with active():
        if dropout:
            check_dropout(function, tensors, options | {"dropout_p": dropout}, want[0])
            return
        got = results(function, tensors, options)
    # Gradients of 16 bits use a rounded output, as in torch's fused kernel, so they need only be as exact.
    for ours, theirs, wanted in zip(got, fused, want, strict=True):
        allowed = 2 * relative_error(theirs, wanted) + ALLOWED[ours.dtype]
        assert ours.shape == wanted.shape and ours.dtype == theirs.dtype
        error = relative_error(ours, wanted)
        assert error <= allowed, f"relative error {error:.1e}, allowed {allowed:.1e}"


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    return normalized_error(got, want) ** 0.5


def in_four_dimensions(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options) -> torch.Tensor:
    """Calls torch's own function with the shapes of its fused kernel."""
    batch = torch.broadcast_shapes(*(x.shape[:-2] for x in (q, k, v)))
    padded = (1, *batch) if len(batch) < 2 else batch
    output = torch.nn.functional.scaled_dot_product_attention(*(x.expand(*padded, *x.shape[-2:]) for x in (q, k, v)), **options)
    return output.reshape(*batch, *output.shape[-2:])


def results(function: Callable, tensors: tuple, options: dict) -> tuple[torch.Tensor, ...]:
    output = function(*tensors, **options)
    leaves = [x for x in (*tensors, options.get("attn_mask")) if x is not None]
    return output, *torch.autograd.grad(output.sum(), leaves)


def check_dropout(function: Callable, tensors: tuple, options: dict, mean: torch.Tensor) -> None:
    """Requires that two seeds differ, and that the mean over many equals the result without dropout."""
    outputs = []
    with torch.no_grad():
        for seed in range(SEEDS):
            torch.manual_seed(seed)
            outputs.append(function(*tensors, **options).double())
    outputs = torch.stack(outputs)
    assert not torch.equal(outputs[0], outputs[1])
    error = (outputs.mean(0) - mean).abs()
    assert (error <= 6 * outputs.std(0) / SEEDS**0.5 + ALLOWED[tensors[0].dtype] * outputs.abs().amax()).all(), f"{error.max()}"
