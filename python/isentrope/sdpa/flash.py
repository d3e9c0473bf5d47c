"""isentrope as one of torch's flash attention implementations, from torch 2.11 on.

    torch.nn.attention.activate_flash_attention_impl("ISENTROPE")
    torch.nn.attention.restore_flash_attention_impl()

torch calls its operators after it has chosen among its fused kernels, and differentiates, compiles and exports them as its own.
Tensors are [batch, rows, heads, dim], or [all rows, heads, dim] of packed documents, whose beginnings are cum_seq_q and cum_seq_k.
"""

from __future__ import annotations

import warnings
from typing import Any, NoReturn

import torch
from torch import Tensor

from isentrope._core.call import Call, drawn_seed
from isentrope._core.library import CHECKED, LSE
from isentrope.rules import ScaleRule, rule_text
from isentrope.sdpa import gpu
from isentrope.sdpa.activation import Activation, check_inactive, laid_out_as


class FlashOperators:
    """Implementations of the operators under one rule. Arguments are those of torch's schemas."""

    def __init__(self, rule: str) -> None:
        self._rule = rule

    def register(self, library: torch.library.Library, device: str = "CUDA") -> None:
        """Registers the implementations for a device. Some versions of torch lack the operator that writes in place."""
        for name, function in {
            "_flash_attention_forward": self._forward,
            "_flash_attention_forward_no_dropout_inplace": self._forward_in_place,
            "_flash_attention_backward": self._backward,
            "_scaled_dot_product_flash_attention": self._dense_forward,
            "_scaled_dot_product_flash_attention_backward": self._dense_backward,
        }.items():
            if hasattr(torch.ops.aten, name):
                library.impl(name, function, device, allow_override=True)

    def _forward(
        self, q: Tensor, k: Tensor, v: Tensor, cum_q: Tensor | None, cum_k: Tensor | None, max_q: int, max_k: int,
        dropout_p: float, is_causal: bool, return_debug_mask: bool, *, scale: float | None = None,
        window_size_left: int | None = None, window_size_right: int | None = None, seqused_k: Tensor | None = None,
        alibi_slopes: Tensor | None = None, block_table: Tensor | None = None, num_splits: int | None = None,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        if return_debug_mask:
            _fail("return_debug_mask must be False", True)
        if alibi_slopes is not None:
            _fail("alibi_slopes must be None, since a bias is an argument of isentrope.attention alone", "a tensor")
        if num_splits:
            _fail("num_splits must be None, since the kernels split keys by the size of the call", num_splits)
        if q.shape[-1] != v.shape[-1]:
            _fail(f"value must have the {q.shape[-1]} columns of query", v.shape[-1])
        options: dict[str, Any] = {"is_causal": is_causal, "scale": scale, "window": (window_size_left, window_size_right)}
        seed = drawn_seed(q) if dropout_p > 0 else None
        if seqused_k is None and block_table is None:
            call = self._call(q, k, v, cum_q, cum_k, **options, dropout_p=dropout_p, seed=seed)
            output, statistics, _ = CHECKED.attention(*call, LSE)
        elif seed is not None:
            _fail("dropout_p must be 0 with seqused_k and with block_table", dropout_p)
        else:
            output, statistics = self._decode(q, k, v, cum_q, cum_k, max_k, seqused_k, block_table, **options)
        lse = statistics[0] if cum_q is None else statistics[0, 0]
        return _as_given(output, q, cum_q), lse, *_random_state(q, seed), q.new_empty(0)

    def _forward_in_place(self, out: Tensor, *arguments: Any, **options: Any) -> Tensor:
        output, lse, *_ = self._forward(*arguments, **options)
        out.copy_(output)
        return lse

    def _backward(
        self, grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, cum_q: Tensor | None,
        cum_k: Tensor | None, max_q: int, max_k: int, dropout_p: float, is_causal: bool, rng_state: Tensor,
        unused: Tensor, *, scale: float | None = None, window_size_left: int | None = None,
        window_size_right: int | None = None,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        seed = rng_state.view(torch.int64).flatten()[0] if dropout_p > 0 else None
        window = window_size_left, window_size_right
        call = self._call(q, k, v, cum_q, cum_k, is_causal, scale, window, dropout_p, seed)
        statistics = lse.contiguous().view(1, *call.q.shape[:3])
        forward = _heads_outside(out, cum_q), statistics, _heads_outside(grad_out, cum_q)
        gradients = CHECKED.attention_backward(*call, LSE, *forward, None, False, False, False, False)
        return tuple(_as_given(gradient, x, cum_q) for gradient, x in zip(gradients[:3], (q, k, v), strict=True))

    def _dense_forward(
        self, q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, is_causal: bool = False,
        return_debug_mask: bool = False, *, scale: float | None = None,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Takes and returns [batch, heads, rows, dim], as `scaled_dot_product_attention` does."""
        passed: list[Any] = [x.transpose(1, 2) for x in (q, k, v)]
        longest = q.shape[2], k.shape[2]
        output, lse, *rest = self._forward(
            *[*passed, None, None, *longest, dropout_p, is_causal, return_debug_mask], scale=scale
        )
        return output.transpose(1, 2), lse, None, None, *longest, *rest

    def _dense_backward(
        self, grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, cum_q: None, cum_k: None,
        *rest: Any, scale: float | None = None,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        passed = (x.transpose(1, 2) for x in (grad_out, q, k, v, out))
        return tuple(x.transpose(1, 2) for x in self._backward(*(*passed, lse, None, None, *rest), scale=scale))

    def _call(
        self, q: Tensor, k: Tensor, v: Tensor, cum_q: Tensor | None, cum_k: Tensor | None, is_causal: bool,
        scale: float | None, window: tuple[int | None, int | None], dropout_p: float = 0.0, seed: Tensor | None = None,
    ) -> Call:  # fmt: skip
        left, right = (-1 if size is None else size for size in window)
        return Call(
            *(_heads_outside(x, cum_q) for x in (q, k, v)), rule=rule_text(self._rule, scale), causal=2 * is_causal,
            window_left=left, window_right=right, dropout_p=dropout_p, dropout_seed=seed,
            cu_seqlens_q=None if cum_q is None else cum_q.long(), cu_seqlens_k=None if cum_k is None else cum_k.long(),
        )  # fmt: skip

    def _decode(
        self, q: Tensor, k: Tensor, v: Tensor, cum_q: Tensor | None, cum_k: Tensor | None, max_k: int,
        used: Tensor | None, table: Tensor | None, **options: Any,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Returns output and statistics of sequences whose keys are in pages, or are the first `used` of those given."""
        if used is None:
            if cum_k is None:
                _fail("seqused_k must be given with block_table", None)
            used = cum_k.diff()
        if table is None and cum_k is not None:  # each key is a page
            table = (cum_k[:-1, None] + torch.arange(max_k, device=k.device)).clamp(max=max(len(k) - 1, 0))
            k, v = k[:, None], v[:, None]
        elif table is None:
            table = torch.arange(len(k), device=k.device)[:, None]
        starts = None if cum_q is None else cum_q.long()
        call = self._call(q if starts is None else q[None], k, v, None, None, **options)
        return CHECKED.decode(*call, table, used.long(), starts, LSE)[:2]


def _fail(required: str, got: Any) -> NoReturn:
    # Same type of error as in torch's own implementations.
    raise RuntimeError(f'[flash_attention] {required}; got {got}: restore_flash_attention_impl() ends "ISENTROPE"')


def _heads_outside(x: Tensor, cum_q: Tensor | None) -> Tensor:
    """Converts dense or packed rows to [batch, heads, rows, dim]."""
    return x.transpose(1, 2) if cum_q is None else x.transpose(0, 1)[None]


def _as_given(result: Tensor, x: Tensor, cum_q: Tensor | None) -> Tensor:
    """Converts a result [batch, heads, rows, dim] to the shape and layout of the argument x."""
    return laid_out_as(x, result.transpose(1, 2) if cum_q is None else result[0].transpose(0, 1))


def _random_state(q: Tensor, seed: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns the seed of dropout in the two tensors that torch passes to the backward pass."""
    shape, dtype = ((), torch.int64) if torch.version.hip else ((2,), torch.uint64)
    unused = torch.empty((), dtype=dtype, device=q.device)
    if seed is None:
        return torch.empty(shape, dtype=dtype, device=q.device), unused
    return seed.expand(shape).clone().view(dtype), unused


_rule = "standard"


def set_flash_rule(rule: str | ScaleRule = "standard") -> None:
    """Sets the rule of the next `activate_flash_attention_impl("ISENTROPE")`, which has no argument for it.

    Raises ValueError for an invalid rule.
    """
    global _rule
    _rule = CHECKED.rule_text(rule_text(rule, None))


def activate() -> Activation:
    """Replaces torch's flash attention operators on GPUs.

    Under a rule it also replaces `scaled_dot_product_attention`, because calls that torch does not send to flash
    attention would ignore the rule. Raises RuntimeError if `isentrope.sdpa.activate` is active.
    """
    check_inactive("activate_flash_attention_impl")
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")  # the caller asks for the override
        FlashOperators(_rule).register(library)
        if _rule != "standard":
            gpu.replace(library, _rule)
    return Activation(library, _rule, replaces_cpu=False)
