"""Exchanges tensors between ranks, asynchronously, so that the caller can compute meanwhile.

All methods of `attention` send through `start`. Each message is tagged with its configuration, so that ranks with
different arguments do not receive each other's messages. Gloo would fail or accept a wrong size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import DeviceMesh, ProcessGroup
from torch.distributed.distributed_c10d import _resolve_process_group

from isentrope._core.values import shown

FORWARD, BACKWARD = "in the forward pass", "in the backward pass"
Group = ProcessGroup | DeviceMesh | None
Wait = Callable[[], None]
"""Waits for messages in flight."""


def group_name(group: Group) -> str:
    """Returns the name by which operators find the group. Raises ValueError for a mesh of more than one dimension, and
    TypeError for anything that is not a group."""
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise ValueError(
                f'[isentrope.distributed] group must be one dimension of a mesh, such as mesh["cp"]; got {group}'
            )
        group = group.get_group()
    if group is not None and not isinstance(group, ProcessGroup):
        raise TypeError(
            "[isentrope.distributed] group must be a process group, one dimension of a mesh, or None; "
            f"got {shown(group)}"
        )
    return (dist.group.WORLD if group is None else group).group_name  # type: ignore[union-attr]


def tag_of(text: str) -> int:
    """Returns a message tag that two texts are unlikely to share."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def failure(group: ProcessGroup, peers: list[int], phase: str, error: object) -> RuntimeError:
    names = ", ".join(map(str, peers))
    return RuntimeError(
        f"[isentrope.distributed] rank {group.rank()} of {group.size()} must hear from rank {names} {phase}, within the "
        f"group's time limit; got none: it has ended, is stuck, or called with other arguments ({error})"
    )


Messages = dict[int, list[Tensor]]
"""Tensors for each peer, contiguous and non-empty, in sending order."""


def start(group: ProcessGroup, tag: int, phase: str, sends: Messages, receives: Messages) -> Wait:
    """Starts sending to and receiving from peers, and returns a function that waits for the messages.

    phase: name for errors, which are a RuntimeError, within the group's time limit, if a peer fails."""
    operations = [
        dist.P2POp(way, tensor, None, group, tag, peer)
        for way, messages in ((dist.isend, sends), (dist.irecv, receives))
        for peer, tensors in messages.items()
        for tensor in tensors
    ]
    peers = sorted({*sends, *receives})

    def wait() -> None:
        try:
            for work in works:
                work.wait()
        except RuntimeError as error:
            raise failure(group, peers, phase, error) from error
        works.clear()
        operations.clear()  # both hold tensors

    try:
        works = dist.batch_isend_irecv(operations) if operations else []
    except RuntimeError as error:
        raise failure(group, peers, phase, error) from error
    return wait


def meet(group: ProcessGroup, device: torch.device, phase: str) -> None:
    """Runs a collective of all ranks, because NCCL requires one first, and `start` skips ranks without messages. Raises
    RuntimeError, within the group's time limit, if a rank does not take part."""
    try:
        dist.all_reduce(torch.zeros(1, device=device), group=group)
    except RuntimeError as error:
        others = [rank for rank in range(group.size()) if rank != group.rank()]
        raise failure(group, others, phase, error) from error


def resolved(name: str) -> ProcessGroup:
    return _resolve_process_group(name)  # type: ignore[arg-type]


@torch.library.custom_op("isentrope::exchange", mutates_args=())
def exchange(values: Tensor, sends: list[int], receives: list[int], tag: int, phase: str, group: str) -> Tensor:
    """Sends [sum of sends], sends[r] values to rank r, and receives [sum of receives] in rank order."""
    ranks = resolved(group)
    result = values.new_empty(sum(receives))
    outgoing, incoming = values.contiguous().split(sends), result.split(receives)
    me = ranks.rank()
    incoming[me].copy_(outgoing[me])
    peers = [rank for rank in range(ranks.size()) if rank != me]
    start(
        ranks, tag, phase,
        {peer: [outgoing[peer]] for peer in peers if sends[peer]},
        {peer: [incoming[peer]] for peer in peers if receives[peer]},
    )()  # fmt: skip
    return result


@exchange.register_fake
def _(values: Tensor, sends: list[int], receives: list[int], tag: int, phase: str, group: str) -> Tensor:
    return values.new_empty(sum(receives))


def _save(ctx, inputs, output) -> None:
    ctx.call = inputs[1:]


def _back(ctx, gradient: Tensor) -> tuple:
    sends, receives, tag, _, group = ctx.call
    return exchange(gradient, receives, sends, tag, BACKWARD, group), None, None, None, None, None


exchange.register_autograd(_back, setup_context=_save)
