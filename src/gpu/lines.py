"""Calls of problem lines for kernels that are compiled or recorded, but not run: tensors have shapes, and nobody reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from isentrope._core.call import call_of
from isentrope._core.library import BITS, LSE, SUPPORT
from isentrope.gpu import launch, launch_derivatives
from isentrope.gpu.launch_forward import forward
from isentrope.gpu.operands import Operands
from isentrope.statistics import ALL
from src.gpu.compiling import Compiled, Launch, Target, compiled, launches

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
WANTED = {"lse": LSE, "entropy": LSE | BITS["entropy"], "all": ALL}


def thin(dtype: torch.dtype, *shape: int) -> Tensor:
    """Returns a tensor of any shape that takes the memory of its last two axes. Its outer strides are 0, so that no kernel
    has tensor descriptors, which C++ does not pass."""
    *outer, rows, columns = shape
    return torch.empty(rows, columns, dtype=dtype).expand(*outer, rows, columns)


def contiguous(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=dtype)


class Line:
    """A call as a line of `isentrope check`.

    wanted: one of WANTED, else the line's `stats`, all by default. make: makes tensors, thin or contiguous. tensors: those of the
    call, by their names in C++."""

    def __init__(self, text: str, wanted: str = "", make: Callable[..., Tensor] = thin) -> None:
        self.text = text
        self.fields = fields = dict(word.split("=", 1) for word in text.split())
        masks = dict(part.partition(":" if part.startswith("causal") else "=")[::2] for part in fields.get("mask", "").split(",") if part)
        sizes = [[int(x) for x in size.split(":")] for size in fields["shape"].split("x")]
        (self.batch,), (self.heads, *kv_heads), (self.queries,), (self.keys,), (self.dim, *value_dim) = sizes
        page, dtype, pairs = int(fields.get("pages", 0)), TYPES[fields.get("dt", "f32")], (self.batch, self.heads, self.queries, self.keys)
        pages = self.batch * -(-self.keys // page) if page else self.batch
        cache = pages, *(kv_heads or [self.heads]), page or self.keys
        self.output = make(dtype, *pairs[:3], *(value_dim or [self.dim]))
        q, k, v = make(dtype, *pairs[:3], self.dim), make(dtype, *cache, self.dim), make(dtype, *cache, *(value_dim or [self.dim]))
        lists = {}
        for name, given in (("cu_seqlens_q", self.queries), ("cu_seqlens_k", self.keys)):
            if "documents" in masks:
                lists[name] = torch.zeros(int(masks["documents"]) + 1, dtype=torch.int64)
                lists[name][-1] = given
        for name, word, number in (("key_begin", "left_padding", 0), ("key_end", "right_padding", self.keys), ("prefix_keys", "prefix", 5)):
            if word in masks:
                lists[name] = torch.full((self.batch,), number)
        made = {
            "attn_mask": ("admitted", lambda: make(torch.bool, *pairs)), "bias": ("bias", lambda: make(torch.float32, *pairs)),
            "sinks": ("sink", lambda: torch.zeros(self.heads)), "lambda": ("lambda", lambda: make(torch.float32, *pairs[:3])),
        }  # fmt: skip
        given = {**lists, **{name: tensor() for name, (word, tensor) in made.items() if word in fields}}
        window = [int(x) for x in masks.get("window", "-1:-1").split(":")]
        self.call = call_of(
            q, k, v, **{"lambda_" if name == "lambda" else name: x for name, x in given.items()},
            causal=masks.get("causal", False), window_size=tuple(window), dilation=int(masks.get("dilation", 0)),
            rule=fields.get("rule", "standard"), soft_cap=float(fields.get("cap", 0)), dropout_p=float(fields.get("dropout", 0)),
            dropout_seed=torch.tensor(int(fields["dropout_seed"])) if "dropout" in fields else None,
        )  # fmt: skip
        self.table = torch.zeros(self.batch, pages // self.batch, dtype=torch.int32) if page else None
        self.tensors = {"q": q, "k": k, "v": v, **given} | ({"block_table": self.table} if page else {})
        self.wanted = WANTED[wanted or fields.get("stats", "all")]

    def __str__(self) -> str:
        return self.text

    def forward(self, with_lengths: bool = False) -> tuple[Tensor, ...]:
        """Makes the forward pass. with_lengths: sequences of a cache have lengths of their own, as in Python and not in C++."""
        if self.table is not None and with_lengths:
            return launch.decode(*self.call, self.table, torch.full((self.batch,), self.keys), None, self.wanted)
        return forward(Operands(self.call, self.table), self.wanted)

    def backward(self, *wants: bool, upstream: bool = True) -> dict[str, Tensor]:
        """Makes the backward pass, and returns its tensors by their names in C++. wants: gradients of the bias, lambda and the
        sinks; by default of those that the call has. upstream: statistics have gradients."""
        d_output = torch.empty_like(self.output)
        statistics = torch.empty((self.wanted & (SUPPORT - 1)).bit_count(), *self.output.shape[:3])
        wants = wants or tuple(name in self.tensors for name in ("bias", "lambda", "sinks"))
        results = self.output, statistics, d_output, torch.empty_like(statistics) if upstream else None
        found = launch.attention_backward(*self.call, self.wanted, *results, *wants, False)
        named = zip(("dq", "dk", "dv", "d_bias", "d_lambda", "d_sinks"), found)
        return {"output": self.output, "d_output": d_output, **{name: x for name, x in named if x.numel() > 0}}

    def run(self) -> None:
        """Makes the pass that the line names; statistics other than lse have gradients."""
        if "bwd" in self.fields:
            self.backward(upstream=self.wanted != LSE)
        else:
            self.forward(with_lengths=True)

    def on(self, target: Target, repairs: bool = False) -> Iterator[tuple[Launch, Compiled]]:
        """Yields the call's kernels compiled for a target; repairs: those of repair launches, else all others."""
        with launches(target) as recorded:
            self.run()
        for one in recorded:
            if one.name.endswith("_repair") == repairs:
                yield one, compiled(one, target)

    def derivatives(self) -> None:
        """Makes the tangent pass and the second-order pass, with all tangents."""
        call, wanted = self.call, self.wanted & (SUPPORT - 1)
        statistics = thin(torch.float32, wanted.bit_count(), *self.output.shape[:3])
        masked = call.bias is not None
        point = *call, wanted, self.output, statistics, call.q, call.k, call.v, call.bias, statistics[0] if masked else None, call.sinks
        launch_derivatives.tangent(*point)
        upstream = statistics if wanted != LSE else None
        launch_derivatives.second_order(*point, self.output, statistics, self.output, upstream, *(masked,) * 3)
