"""Conformance problems of `isentrope check` on this package's kernels, checked by the library."""

from __future__ import annotations

import ctypes
import json
from functools import cache
from typing import Any

import torch
from torch import Tensor

from isentrope._core.attend import attend
from isentrope._core.call import call_of
from isentrope._core.libraries import path_of
from isentrope._core.library import AXES, STATISTICS
from isentrope._core.masks import Masks
from isentrope._core.options import KNOWN
from isentrope.functions import decode, varlen_attention
from isentrope.statistics import Statistics

_TYPES = {
    "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i64": torch.int64, "i32": torch.int32,
    "u8": torch.bool,
}  # fmt: skip
_CAUSAL = {0: False, 1: "top_left", 2: "bottom_right"}
_DIFFERENTIABLE = tuple(statistic["name"] for statistic in STATISTICS if statistic["differentiable"])


@cache
def _library() -> Any:
    library = ctypes.CDLL(str(path_of("isentrope_check")))
    pointer, text, whole = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64
    for name, result, arguments in (
        ("open", pointer, [text]),
        ("generate", pointer, [ctypes.c_uint64, whole, whole]),
        ("close", None, [pointer]),
        ("error", text, []),
        ("line", text, [pointer]),
        ("rule", text, [pointer]),
        ("statistic", text, [pointer]),
        ("number", ctypes.c_double, [pointer, text]),
        ("input", whole, [pointer, text, ctypes.POINTER(pointer), ctypes.POINTER(text), ctypes.POINTER(whole)]),
        ("upstream", whole, [pointer, text, ctypes.POINTER(pointer)]),
        ("put", None, [pointer, text, ctypes.POINTER(ctypes.c_float), whole]),
        ("verdict", text, [pointer, ctypes.c_bool]),
    ):
        function = getattr(library, f"isentrope_check_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def _copied(data: ctypes.c_void_p, dtype: torch.dtype, shape: Any) -> Tensor:
    tensor = torch.empty(tuple(shape), dtype=dtype)
    if tensor.numel():
        ctypes.memmove(tensor.data_ptr(), data, tensor.numel() * tensor.element_size())
    return tensor


def _call(name: str, *arguments: Any) -> Any:
    return getattr(_library(), f"isentrope_check_{name}")(*arguments)


def _with_batch(result: tuple[Tensor, Statistics]) -> tuple[Tensor, Statistics]:
    """Returns results of packed queries as [1, heads, queries, ...]."""
    output, statistics = result
    return output.transpose(0, 1)[None], Statistics(*(None if x is None else x[None] for x in statistics))


class Problem:
    """One attention call, its numbers and its reference. Raises ValueError for an invalid line."""

    def __init__(self, handle: int | None) -> None:
        if not handle:
            raise ValueError(_call("error").decode())
        self._handle = handle

    @classmethod
    def of_line(cls, line: str) -> Problem:
        return cls(_call("open", line.encode()))

    @classmethod
    def generated(cls, seed: int, index: int, work: int) -> Problem:
        return cls(_call("generate", seed, index, work))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            _call("close", self._handle)

    @property
    def line(self) -> str:
        return _call("line", self._handle).decode()

    def number(self, name: str) -> int:
        return int(_call("number", self._handle, name.encode()))

    def tensor(self, name: str) -> Tensor | None:
        data, kind, extents = ctypes.c_void_p(), ctypes.c_char_p(), (ctypes.c_int64 * 4)()
        rank = _call("input", self._handle, name.encode(), ctypes.byref(data), ctypes.byref(kind), extents)
        if rank == 0:
            return None
        return _copied(data, _TYPES[(kind.value or b"").decode()], list(extents[:rank]))

    def upstream(self, name: str, shape: Any, dtype: torch.dtype) -> Tensor:
        data = ctypes.c_void_p()
        _call("upstream", self._handle, name.encode(), ctypes.byref(data))
        return _copied(data, torch.float64, shape).to(dtype)

    def run(self, device: str = "cpu") -> None:
        """Computes all results of the problem through public functions."""

        def other(name: str) -> Any:
            found = self.tensor(name)
            return None if found is None else found.to(device)

        q, k, v = map(other, "qkv")

        soft_cap, dropout_p = (_call("number", self._handle, name) for name in (b"soft_cap", b"dropout_p"))
        masks = Masks(**{name: other(name) if AXES[name] else self.number(name) for name in Masks._fields})
        statistic = _call("statistic", self._handle).decode()
        # A name of a line is that of a result, but for `lambda`, which Python keeps for itself.
        wanted = [name for name in Statistics._fields if name.rstrip("_") == statistic] or True
        rule, table = _call("rule", self._handle).decode(), other("block_table")
        if table is not None:
            options = {name: getattr(masks, name) for name in KNOWN["decode"].intersection(Masks._fields)}
            options |= {"causal": _CAUSAL[masks.causal], "window_size": (masks.window_left, masks.window_right)}
            options |= {"soft_cap": soft_cap, "sinks": other("sinks")}
            options |= {"rule": rule, "return_stats": wanted}
            if self.tensor("cu_seq_q") is not None:
                options |= {"block_table": table, "seqused_k": other("seqused_k")}
                self._put_forward(_with_batch(varlen_attention(q[0].transpose(0, 1), k, v, other("cu_seq_q"), **options)))
                return
            used = torch.full((q.shape[0],), self.number("keys"), device=device)
            self._put_forward(decode(q, k, v, table, used, **options))
            return
        leaves = {"dq": q, "dk": k, "dv": v, "d_bias": other("bias"), "d_lambda": other("lambda"), "d_sinks": other("sinks")}
        backward = self.number("backward") == 1
        for leaf in leaves.values():
            if leaf is not None:
                leaf.requires_grad_(backward)
        # Calls the operator, because no public function takes both documents and a batch.
        call = call_of(
            q, k, v, masks=masks, lambda_=leaves["d_lambda"], attn_mask=other("attn_mask"), bias=leaves["d_bias"],
            sinks=leaves["d_sinks"], rule=rule, soft_cap=soft_cap, dropout_p=dropout_p,
            dropout_seed=self.number("dropout_seed"),
        )  # fmt: skip
        result = attend(call, wanted)
        self._put_forward(result)
        if backward:
            self._put_backward(result, leaves)

    @property
    def unsupported(self) -> str:
        """Returns why no function of the package supports this call; "" if one does."""
        if self.tensor("block_table") is None:
            return ""
        if _call("number", self._handle, b"dropout_p") > 0:
            return "decode takes no dropout"
        if self.number("backward"):
            return "paged keys have no backward pass"
        others = ("bias", "attn_mask", "lambda", "cu_seqlens_q", "key_begin", "key_end")
        if any(self.tensor(name) is not None for name in others) or self.number("query_offset") or self.number("key_offset"):
            return "decode takes no mask but causal and windows"
        return ""

    def _put(self, name: str, values: Tensor) -> None:
        floats = values.detach().float().cpu().contiguous()
        _call("put", self._handle, name.encode(), ctypes.cast(floats.data_ptr(), ctypes.POINTER(ctypes.c_float)), floats.numel())

    def _put_forward(self, result: tuple[Tensor, Statistics]) -> None:
        output, statistics = result
        self._put("output", output)
        for name, values in statistics._asdict().items():
            if values is not None:
                self._put(name.rstrip("_"), values)

    def _put_backward(self, result: tuple[Tensor, Statistics], leaves: dict[str, Tensor | None]) -> None:
        output, statistics = result
        names = [name for name in _DIFFERENTIABLE if getattr(statistics, name) is not None]
        results = [output] + [getattr(statistics, name) for name in names]
        upstream = [self.upstream("d_output", output.shape, output.dtype)]
        upstream += [self.upstream(f"d_{name}", output.shape[:3], torch.float32) for name in names]
        wanted = {name: leaf for name, leaf in leaves.items() if leaf is not None}
        found = torch.autograd.grad(results, list(wanted.values()), [x.to(output.device) for x in upstream])
        for name, gradient in zip(wanted, found):
            self._put(name, gradient)

    def verdict(self) -> dict[str, Any]:
        """Returns outcome, reason, and for forward and backward error_over_budget, where it is largest, and of each
        result."""
        text = _call("verdict", self._handle, True)
        if text is None:
            raise ValueError(_call("error").decode())
        return json.loads(text)
