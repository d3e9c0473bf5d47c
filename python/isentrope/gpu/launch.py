"""The operators: checks their arguments and launches the kernels. Nothing here waits for the device or reads its tensors."""

from __future__ import annotations

from functools import lru_cache
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from isentrope._core.call import TENSORS, Call
from isentrope._core.library import BITS, LSE, SUPPORT
from isentrope.gpu import prepared
from isentrope.gpu.arguments import slice_of
from isentrope.gpu.launch_backward import backward
from isentrope.gpu.launch_forward import forward
from isentrope.gpu.launch_rows import resolve_rows
from isentrope.gpu.operands import Operands, pages_of
from isentrope.gpu.prepared import Steps
from isentrope.statistics import with_needs


def attention(*arguments: Any) -> tuple[Tensor, ...]:
    """Implements isentrope::attention."""
    return prepared.run(_attention, arguments[:TENSORS], arguments[TENSORS:])


@lru_cache
def _needed(wanted: int) -> tuple[int, tuple[int, ...]]:
    """Returns the bits of statistics and of what their gradients need, and the slices of the former in the tensor of the latter."""
    bits = with_needs(wanted)
    return bits, tuple(slice_of(name, bits) for name, bit in BITS.items() if wanted & bit & ~SUPPORT)


def attention_plain(q: Tensor, k: Tensor, v: Tensor, rule: str, causal: int, wanted: int) -> list[Tensor]:
    """Implements isentrope::attention.plain by the kernels that the general operator would launch."""
    if not wanted:
        return [prepared.run(_attention_plain, (q, k, v), (rule, causal, torch.is_grad_enabled() * LSE))[0]]
    bits, slices = _needed(wanted)
    output, statistics, support = prepared.run(_attention_plain, (q, k, v), (rule, causal, bits))
    # Autograd, which sees only the operator's results, would take time for each view.
    with torch._C._AutoDispatchBelowADInplaceOrView():
        pieces = statistics.unbind()
    named = pieces if len(slices) == len(pieces) else [pieces[place] for place in slices]
    return [output, *named, support] if wanted & SUPPORT else [output, *named]


def _attention_plain(steps: Steps, tensors: tuple, numbers: tuple) -> tuple[Tensor, ...]:
    rule, causal, bits = numbers
    results = forward(Operands(Call(*tensors, rule=rule, causal=causal), steps=steps), bits)
    return results if bits else results[:1]


def _attention(steps: Steps, tensors: tuple, numbers: Sequence[Any]) -> tuple[Tensor, ...]:
    *numbers, wanted = numbers
    return forward(Operands((*tensors, *numbers), steps=steps), wanted)


def attention_backward(*arguments: Any) -> tuple[Tensor, ...]:
    """Implements isentrope::attention_backward."""
    *shared, wanted, output, statistics, d_output, d_statistics, wants_bias, wants_lambda, wants_sinks, in_float32 = arguments
    results = output, statistics, d_output, d_statistics
    wants = wanted, wants_bias, wants_lambda, wants_sinks, in_float32
    return prepared.run(_attention_backward, (*shared[:TENSORS], *results), (*shared[TENSORS:], *wants))


def attention_backward_plain(
    q: Tensor, k: Tensor, v: Tensor, rule: str, causal: int, output: Tensor, lse: Tensor, d_output: Tensor
) -> tuple[Tensor, ...]:
    """Implements isentrope::attention_backward.plain."""
    return prepared.run(_attention_backward_plain, (q, k, v, output, lse, d_output), (rule, causal))


def _attention_backward_plain(steps: Steps, tensors: tuple, numbers: tuple) -> tuple[Tensor, ...]:
    (*qkv, output, lse, d_output), (rule, causal) = tensors, numbers
    call = Operands(Call(*qkv, rule=rule, causal=causal), steps=steps)
    return backward(call, LSE, output, lse, d_output, None, False, False, False, False)[:3]


def _attention_backward(steps: Steps, tensors: tuple, numbers: Sequence[Any]) -> tuple[Tensor, ...]:
    *numbers, wanted, wants_bias, wants_lambda, wants_sinks, in_float32 = numbers
    call = Operands((*tensors[:TENSORS], *numbers), steps=steps)
    return backward(*(call, wanted, *tensors[TENSORS:], wants_bias, wants_lambda, wants_sinks, in_float32))


def decode(*arguments: Any) -> tuple[Tensor, ...]:
    """Implements isentrope::decode."""
    *shared, table, used, starts, wanted = arguments
    return prepared.run(_decode, (*shared[:TENSORS], *pages_of(table, used, starts)), (*shared[TENSORS:], wanted))


def _decode(steps: Steps, tensors: tuple, numbers: Sequence[Any]) -> tuple[Tensor, ...]:
    (*shared, table, used, starts), (*numbers, wanted) = tensors, numbers
    return forward(Operands((*shared, *numbers), table, steps, starts, used), wanted)


def row_lengths(*arguments: Any) -> Tensor:
    """Implements isentrope::row_lengths."""
    (lengths,) = prepared.run(_row_lengths, arguments[:TENSORS], arguments[TENSORS:])
    return lengths


def _row_lengths(steps: Steps, tensors: tuple, numbers: tuple) -> tuple[Tensor, ...]:
    call = Operands((*tensors, *numbers), steps=steps)
    (lengths,) = steps.allocate(torch.empty(call.rows, dtype=torch.int64, device=call.q.device))
    if lengths.numel() > 0:
        resolve_rows(call, 64, lengths=lengths)
    return (lengths,)
