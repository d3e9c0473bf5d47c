"""Numbers of compiled kernels without a device: instructions for each score, and concurrent programs. Then their limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from isentrope.gpu.plan import programs_of
from src.gpu.compiling import TARGETS, Compiled, Loop

GRADIENTS = "query gradient", "key gradient"
PEER = "FlexAttention "


class Measured(NamedTuple):
    """A compiled kernel or one loop of it: its tile, its resources, and the loop of tiles without masked keys."""

    name: str
    dtype: str
    dim: int
    rows: int
    keys: int
    warps: int
    kernel: Compiled
    loop: Loop

    @property
    def a_score(self) -> float:
        return self.loop.instructions * self.warps / (self.rows * self.keys)

    @property
    def a_flop(self) -> float:
        return self.loop.instructions / self.loop.operations

    @property
    def programs(self) -> int:
        return programs_of(TARGETS["sm_90"].chip, self.kernel.registers, self.kernel.shared, self.warps)


class Bar(NamedTuple):
    """A number that must not be above `bar`; at_least: or below."""

    what: str
    value: float
    bar: float
    at_least: bool = False

    @property
    def holds(self) -> bool:
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    def __str__(self) -> str:
        side = "least" if self.at_least else "most"
        return f"{'holds' if self.holds else 'MISSED'}: {self.what}: {self.value:.3g}; at {side} {self.bar:.3g}"


def bars(kernels: list[Measured]) -> Iterator[Bar]:
    """Yields the limits of the kernels of one type and head dimension."""
    for x in kernels:
        if not x.name.startswith((PEER, "plain")):
            yield from of_each(x)
    named = {x.name: x for x in kernels if x.name != "plain forward"}
    yield from _of_forward(named, [x for x in kernels if x.name == "plain forward"])
    yield from _of_gradients(named)


def of_each(x: Measured) -> Iterator[Bar]:
    """Yields the limits of any kernel."""
    about, loops = f"{x.dtype}, d {x.dim}, {x.name}: ", x.kernel.loops
    least = 64 if x.name.startswith("forward") else 32
    yield Bar(about + "bytes spilled", x.kernel.spilled, 0)
    yield Bar(about + "spilled registers touched in a loop", max(loop.spills for loop in loops), 0)
    yield Bar(about + "fences in a loop", max(loop.fences for loop in loops), 8)
    columns = min(loop.narrowest for loop in loops)
    yield Bar(about + "columns of the narrowest product", columns, least, at_least=True)


def _of_forward(named: dict[str, Measured], plain: list[Measured]) -> Iterator[Bar]:
    lse = named["forward"]
    about = f"{lse.dtype}, d {lse.dim}, forward: "
    alike = min(plain, key=lambda x: abs(x.rows * x.keys - lse.rows * lse.keys))
    yield Bar(about + "instructions a score over the plain kernel's", lse.a_score / alike.a_score, 1.03)
    yield Bar(about + "registers beyond the plain kernel's", lse.kernel.registers - alike.kernel.registers, 8)
    if lse.dim == 64:
        yield Bar(about + "programs on a multiprocessor", lse.programs, 2, at_least=True)


def _of_gradients(named: dict[str, Measured]) -> Iterator[Bar]:
    query = named[GRADIENTS[0]]
    about = f"{query.dtype}, d {query.dim}, gradients: "

    def a_flop(prefix: str) -> float:
        # Three products of one gradient, four of the other.
        return sum(products * named[prefix + name].a_flop for products, name in zip((3, 4), GRADIENTS))

    ratio = a_flop("") / a_flop(PEER)
    yield Bar(about + "instructions a flop over FlexAttention's", ratio, 1.15)
