"""What crosses between ranks: tensors, by name of the peer, under way while the caller computes.

Everything the ways of `attention` send goes through `start`. Each message carries the number of its configuration as a
tag, so that ranks which call with different arguments do not take each other's messages: with Gloo a message of the
wrong size would end the process, or be taken as it is.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import DeviceMesh, ProcessGroup
from torch.distributed.distributed_c10d import _resolve_process_group

from isentrope._core.values import shown

FORWARD, BACKWARD = "in the forward pass", "in the backward pass"
Group = ProcessGroup | DeviceMesh | None


def group_name(group: Group) -> str:
    """The name under which the operators find the group. ValueError for a mesh of more than one dimension, TypeError for
    what is no group."""
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
    return (dist.group.WORLD if group is None else group).group_name


class Pending:
    """Messages under way."""

    def __init__(self, group: ProcessGroup, works: list, kept: list[Tensor], peers: Iterable[int], phase: str) -> None:
        self._group, self._works, self._kept, self._peers, self._phase = group, works, kept, sorted(peers), phase

    def wait(self) -> None:
        """Raises RuntimeError, within the group's time limit, when a peer does not do its part."""
        try:
            for work in self._works:
                work.wait()
        except RuntimeError as error:
            raise failure(self._group, self._peers, self._phase, error) from error
        self._works, self._kept = [], []


def failure(group: ProcessGroup, peers: list[int], phase: str, error: object) -> RuntimeError:
    names = ", ".join(map(str, peers))
    return RuntimeError(
        f"[isentrope.distributed] rank {group.rank()} of {group.size()} must hear from rank {names} {phase}, within the "
        f"group's time limit; got none: it has ended, is stuck, or called with other arguments ({error})"
    )


Messages = dict[int, list[Tensor]]
"""Of each peer, in the order in which they are sent; contiguous, and none of them empty."""


def start(group: ProcessGroup, tag: int, phase: str, sends: Messages, receives: Messages) -> Pending:
    """Sends the peers their tensors and fills those that are to come. `phase`: what errors say of it."""
    operations = [
        dist.P2POp(way, tensor, None, group, tag, peer)
        for way, messages in ((dist.isend, sends), (dist.irecv, receives))
        for peer, tensors in messages.items()
        for tensor in tensors
    ]
    peers = {*sends, *receives}
    try:
        works = dist.batch_isend_irecv(operations) if operations else []
    except RuntimeError as error:
        raise failure(group, sorted(peers), phase, error) from error
    return Pending(group, works, [operation.tensor for operation in operations], peers, phase)


def meet(group: ProcessGroup, device: torch.device, phase: str) -> None:
    """A call that every rank makes: NCCL wants that of the first one of a group, and `start` leaves out those who have
    nothing to send or to hear. Raises RuntimeError, within the group's time limit, when a rank does not come."""
    try:
        dist.all_reduce(torch.zeros(1, device=device), group=group)
    except RuntimeError as error:
        others = [rank for rank in range(group.size()) if rank != group.rank()]
        raise failure(group, others, phase, error) from error


def resolved(name: str) -> ProcessGroup:
    """The group that the operators know by name."""
    return _resolve_process_group(name)


@torch.library.custom_op("isentrope::exchange", mutates_args=())
def exchange(values: Tensor, sends: list[int], receives: list[int], tag: int, phase: str, group: str) -> Tensor:
    """[sum of sends] to [sum of receives]: rank r gets the next sends[r] of `values`, and ours come in the same order."""
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
    ).wait()  # fmt: skip
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
