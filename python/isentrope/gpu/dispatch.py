"""Launches a kernel. Triton compiles it once for a key; later launches of the key skip Triton's dispatch.

Triton computes the specialization of every argument, a string of all options and a check of all globals in each launch.
The key here has what decides among compiled kernels, and nothing else.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from operator import itemgetter
from typing import Any

import torch
from triton import knobs
from triton.runtime import driver
from triton.tools.tensor_descriptor import TensorDescriptor

# Integers that Triton passes in 32 bits.
_NARROW = range(-(1 << 31), 1 << 31)
# Compiled kernels with the values of their constant parameters, by key.
_COMPILED: dict[tuple, tuple[Any, tuple]] = {}


@lru_cache(4096)
def _specialization(function: Any, numbers: tuple) -> tuple:
    """Returns the part of a key that depends on the numbers that a function is passed. Each of its parameters has one type.

    Triton compiles for integers that are 1, for those that 16 divides, and for those beyond 32 bits.
    """
    return tuple(type(x) if type(x) is not int else 1 if x == 1 else (x % 16 == 0, x in _NARROW) for x in numbers)


# Functions that take the numbers, and all others, from the arguments of a function.
_PARTS: dict[Any, tuple[itemgetter, itemgetter]] = {}


def _parts(function: Any, arguments: tuple) -> tuple[itemgetter, itemgetter]:
    """Returns how the arguments of a function are parted. Each of its parameters is a number in every launch, or in none."""
    numbers = [at for at, x in enumerate(arguments) if type(x) in (int, float)]
    others = [at for at in range(len(arguments)) if at not in numbers]
    return _PARTS.setdefault(function, (itemgetter(*numbers), itemgetter(*others)))


def _key(function: Any, arguments: tuple) -> tuple:
    """Returns what decides among the compiled kernels of a function and the same constants."""
    numbers, others = _PARTS.get(function) or _parts(function, arguments)
    tensors: list[Any] = []
    for x in others(arguments):
        if x is None:
            tensors.append(None)
        elif type(x) is TensorDescriptor:
            tensors.append((x.base.dtype, *x.block_shape))
        else:
            tensors.append(x.dtype)
            tensors.append(x.data_ptr() & 15 == 0)
    return function, arguments[0].device, tuple(tensors), _specialization(function, numbers(arguments))


class _Orders(dict[Any, itemgetter]):
    """Functions that take the arguments of a kernel from arguments by name, in its order. There may be others among these."""

    def __missing__(self, function: Any) -> itemgetter:
        parameters = inspect.signature(function).parameters.items()
        self[function] = pick = itemgetter(*(name for name, x in parameters if "constexpr" not in str(x.annotation)))
        return pick


IN_ORDER = _Orders()


def launch(kernel: Any, grid: tuple[int, int, int], arguments: tuple, *variants: dict[str, Any]) -> list[tuple[Any, tuple] | None]:
    """Launches variants of a kernel, one after the other, on the current stream of the device where the first argument lies.

    That device must be the current one. arguments: those of IN_ORDER, the first a tensor. variants: constant parameters, and Triton's
    options. Returns for each the compiled kernel and the values of its constants; None in the interpreter and on AMD and Intel,
    which take Triton's own dispatch each time.
    """
    key = _key(kernel.fn, arguments)
    place, launched = None, []
    for constants in variants:
        own = key, tuple(constants.items())
        found = _COMPILED.get(own)
        if found is not None:
            place = place or place_of(arguments[0].device)
            launch_compiled(found[0], grid, place, arguments + found[1])
        else:
            compiled = kernel.run(*arguments, grid=grid, warmup=False, **constants)
            # There is none in the interpreter, nor where a hook or a test takes the launch.
            if compiled is not None and compiled.metadata.target.backend == "cuda":
                found = _COMPILED[own] = compiled, tuple(constants[name] for name in kernel.arg_names[len(arguments) :])
        launched.append(found)
    return launched


def place_of(device: torch.device) -> tuple[int, Any, Any]:
    """Returns the current stream of a device, and the hooks of profilers around each launch."""
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    # Chains of hooks without any hook take 2 us a launch, and do nothing.
    if not (getattr(enter, "calls", enter) or getattr(leave, "calls", leave)):
        enter = leave = None
    return driver.active.get_current_stream(device.index), enter, leave


def launch_compiled(compiled: Any, grid: tuple[int, int, int], place: tuple[int, Any, Any], passed: tuple) -> None:
    """Launches a kernel with its arguments and constants, by the call that Triton itself ends in. Pointers are tensors or addresses.

    place: of `place_of`."""
    stream, enter, leave = place
    metadata = compiled.launch_metadata(grid, stream, *passed) if enter or leave else None
    compiled.run(*grid, stream, compiled.function, compiled.packed_metadata, metadata, enter, leave, *passed)
