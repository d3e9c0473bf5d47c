"""Prepared calls: the first two calls of a signature are planned, and later ones repeat the steps with addresses of their own.

A signature is everything that a plan depends on: shapes, strides, types and devices of tensors, which of their addresses 16
divides, numbers, flags, the rule, and the version of the tables of tiles. It has no address and no contents of a tensor. The plan
alone decides, and its steps are noted while it runs. The interpreter, AMD and Intel plan every call, because Triton's own dispatch
launches there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from isentrope.gpu import dispatch, tile_table

# Signatures that are kept.
LIMIT = 512
# Parts of a workspace begin at its multiples, as allocations on a device do.
_ALIGNMENT = 512
# Tensors that a captured graph reads must stay alive for the whole process.
_CAPTURED: dict[int, Tensor] = {}


def _is_captured(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _hold_if_captured(tensors: Sequence[Tensor]) -> None:
    if tensors and _is_captured(tensors[0].device):
        _CAPTURED.update((id(x), x) for x in tensors)


class Steps:
    """Steps of a call on its device. Each is done at once, and noted for later calls of the same signature.

    given: the call's tensors, each a Python object of its own, because steps name tensors by their identity.
    """

    def __init__(self, given: Sequence[Tensor] = ()) -> None:
        self.given, self.repeatable = given, True
        self.allocations: list[Tensor] = []
        self.constants: list[Tensor] = []
        self.launches: list[tuple[Any, tuple[int, int, int], tuple]] = []
        # Functions and launches in their order: a function and its tensors, or None and the number of the launch.
        self.sequence: list[tuple[Any, Any]] = []

    def allocate(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Returns tensors that the call has just allocated. Later calls allocate tensors of the same shapes and strides."""
        self.allocations += tensors
        return tensors

    def keep(self, *tensors: Tensor) -> None:
        """Notes constants that every call of the signature reads. They stay alive for later calls and captured graphs."""
        self.constants += tensors
        _hold_if_captured(tensors)

    def do(self, function: Callable[..., Any], *tensors: Tensor | None) -> None:
        """Calls a function that reads and writes these tensors, each of them given, or allocated by this call."""
        function(*tensors)
        self.sequence.append((function, tensors))

    def launch(self, kernel: Any, grid: tuple[int, int, int], named: dict[str, Any], *variants: dict[str, Any]) -> None:
        """Launches variants of a kernel, one after the other. named: its arguments, and maybe others. See `dispatch.launch`."""
        arguments = dispatch.IN_ORDER[kernel.fn](named)
        for compiled in dispatch.launch(kernel, grid, arguments, *variants):
            self.repeatable &= compiled is not None
            self.sequence.append((None, len(self.launches)))
            self.launches.append((compiled, grid, arguments))


class _Unknown(Exception):
    """A step has a tensor that later calls would not have."""


class _Places:
    """Finds the place of each argument in the list of values that a prepared call makes.

    The list has addresses of the tensors given, of those allocated separately and of the workspace, which has all other
    allocations. Then come addresses with an offset, numbers, and tensor descriptors.
    """

    def __init__(self, given: Sequence[Tensor], separate: Sequence[Tensor], steps: Steps) -> None:
        tensors = [*given, *separate]
        self.tensors: dict[int, int] = {id(x): at for at, x in enumerate(tensors)}
        self._constants = {id(x) for x in steps.constants}
        # By the address of its storage: the place of an allocation, its offset there, and its address in this call.
        self._allocations: dict[int, tuple[int, int, int]] = {}
        self.workspace_bytes = 0
        for x in steps.allocations:
            at, offset = self.tensors.get(id(x), len(tensors)), 0
            if at == len(tensors):
                offset, self.workspace_bytes = self.workspace_bytes, self.workspace_bytes + -(-x.nbytes // _ALIGNMENT) * _ALIGNMENT
            self._allocations[x.untyped_storage().data_ptr()] = at, offset, x.data_ptr()
        self.addresses = len(tensors) + 1
        self.offsets: dict[tuple[int, int], int] = {}
        self.numbers: list[Any] = []
        self.descriptors: list[tuple[Any, ...]] = []

    def tensor(self, x: Tensor | None) -> int | None:
        """Returns the place of a tensor among those given and allocated separately; None for None."""
        if x is not None and id(x) not in self.tensors:
            raise _Unknown
        return None if x is None else self.tensors[id(x)]

    def value(self, x: Any) -> tuple[int, int]:
        """Returns the kind of a value and its place among values of the kind. Kinds are in the order of the list."""
        if isinstance(x, TensorDescriptor):
            self.descriptors.append((self.tensor(x.base), x.shape, x.strides, x.block_shape))
            return 3, len(self.descriptors) - 1
        # The address of a tensor without elements is 0.
        if isinstance(x, Tensor) and x.numel() > 0 and id(x) not in self._constants:
            at, offset = self._address(x)
            return (1, self.offsets.setdefault((at, offset), len(self.offsets))) if offset else (0, at)
        self.numbers.append(x.data_ptr() if isinstance(x, Tensor) else x)
        return 2, len(self.numbers) - 1

    def _address(self, x: Tensor) -> tuple[int, int]:
        """Returns the place of an address, and an offset in bytes."""
        if id(x) in self.tensors:
            return self.tensors[id(x)], 0
        # Views of given tensors are unknown, because these may share a storage.
        if x.untyped_storage().data_ptr() not in self._allocations:
            raise _Unknown
        at, offset, address = self._allocations[x.untyped_storage().data_ptr()]
        return at, offset + x.data_ptr() - address

    def picks(self, launches: list[list[tuple[int, int]]]) -> list[Callable[[list[Any]], tuple] | None]:
        """Returns a function for each launch that takes its arguments from the list of values; None without any."""
        first = [0, self.addresses, self.addresses + len(self.offsets), self.addresses + len(self.offsets) + len(self.numbers)]
        return [itemgetter(*(first[kind] + at for kind, at in passed)) if passed else None for passed in launches]


class Prepared:
    """The steps of a call, for tensors of the same signature."""

    def __init__(self, steps: Steps, results: tuple[Tensor, ...]) -> None:
        """Raises _Unknown if a step reads a tensor that was neither given nor allocated, and is no constant."""
        if not {id(x) for x in results} <= {id(x) for x in steps.allocations}:
            raise _Unknown
        touched = {id(x) for function, xs in steps.sequence if function for x in xs} - {id(x) for x in results}
        separate = [*results, *(x for x in steps.allocations if id(x) in touched)]
        places = _Places(steps.given, separate, steps)
        # Variants of a kernel share their arguments, and only the first picks them.
        shared = [at > 0 and one[2] is steps.launches[at - 1][2] for at, one in enumerate(steps.launches)]
        launches = [[] if same else [places.value(x) for x in one[2]] for same, one in zip(shared, steps.launches)]
        picks = places.picks(launches)
        self._steps: list[tuple[Any, Any, Any, tuple]] = []
        for function, what in steps.sequence:
            if function:
                self._steps.append((function, None, [places.tensor(x) for x in what], ()))
            else:
                (compiled, constants), grid, _ = steps.launches[what]
                self._steps.append((compiled, grid, picks[what], constants))
        self._device, self._constants, self._results = steps.given[0].device, steps.constants, len(results)
        # The allocation of torch's compiled code takes half the time of torch.empty_strided. It uses the current device.
        self._allocate = getattr(torch._C._dynamo.guards, f"_empty_strided_{self._device.type}")
        self._allocations = [(tuple(x.shape), x.stride(), x.dtype) for x in separate]
        self._allocations.append(((places.workspace_bytes,), (1,), torch.uint8))
        self._offsets, self._numbers, self._descriptors = list(places.offsets), places.numbers, places.descriptors

    def __call__(self, given: list[Tensor], addresses: list[int]) -> tuple[Tensor, ...]:
        allocated = [self._allocate(*layout) for layout in self._allocations]
        tensors = given + allocated
        values = addresses + [x.data_ptr() for x in allocated]
        values += [values[at] + offset for at, offset in self._offsets]
        values += self._numbers
        if self._descriptors:
            values += [TensorDescriptor(tensors[at], *others) for at, *others in self._descriptors]
        if self._constants:
            _hold_if_captured(self._constants)
        place, passed = dispatch.place_of(self._device), ()
        for step, grid, pick, constants in self._steps:
            if grid is None:
                step(*[None if at is None else tensors[at] for at in pick])
            else:
                passed = pick(values) if pick else passed
                dispatch.launch_compiled(step, grid, place, passed + constants)
        return tuple(allocated[: self._results])


class _Entry:
    """A signature: how many of its calls were planned, and its prepared call if there is one."""

    __slots__ = ("planned", "prepared")

    def __init__(self) -> None:
        self.planned = 0
        self.prepared: Prepared | None = None


@lru_cache(LIMIT)
def _entry(plan: Callable[..., Any], version: int, signature: tuple) -> _Entry:
    return _Entry()


def forget() -> None:
    """Makes the next call of each signature plan again."""
    _entry.cache_clear()


def run(plan: Callable[..., tuple[Tensor, ...]], tensors: tuple[Tensor | None, ...], numbers: tuple) -> tuple[Tensor, ...]:
    """Returns plan(steps, tensors, numbers), or what the steps of an earlier call of the same signature compute."""
    signature: list[Any] = []
    given, addresses = [], []
    for x in tensors:
        if x is None:
            signature.append(None)
        else:
            address = x.data_ptr()
            given.append(x)
            addresses.append(address)
            signature += (x.shape, x.stride(), x.dtype, x.device, address & 15 == 0)
    entry = _entry(plan, tile_table.version(), (*signature, *numbers))
    if entry.prepared is not None:
        return entry.prepared(given, addresses)
    entry.planned += 1
    # The second call is prepared: this takes as long as planning, and most signatures of a cache that grows come once.
    if entry.planned != 2:
        return plan(Steps(), tensors, numbers)
    # One tensor may be several arguments, and those of later calls different tensors.
    aliases = tuple(None if x is None else x.detach() for x in tensors)
    steps = Steps([x for x in aliases if x is not None])
    results = plan(steps, aliases, numbers)
    if steps.repeatable and steps.launches:
        try:
            entry.prepared = Prepared(steps, results)
        except _Unknown:
            pass
    return results
