"""Counts what each statistic costs on sm_90: instructions for a score, over those of the same pass without statistics.

Nothing is timed and no device is needed. Both passes have the tile that the plan has for statistics, without measured
tiles; or each has its own, those measured on an H200. The backward pass is that of a loss that reads the statistic: the
query gradient and the key gradient together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple
from unittest import mock

from bench.gpu import static
from bench.gpu.bar import Bar, Measured, of_each
from bench.gpu.static import LSE
from isentrope._core.library import BITS
from isentrope.gpu import plan, tile_table
from isentrope.gpu.arguments import TERMS_OF
from isentrope.statistics import ALL, with_needs

STATISTICS = {name: with_needs(BITS[name]) for name, terms in TERMS_OF.items() if terms} | {"all": ALL}
PASSES = "forward", "backward"
LIMITS = {  # largest ratio to the pass without statistics, by pass, statistic, type and dimension
    ("forward", "entropy"): {("bf16", 64): 1.125, ("bf16", 128): 1.10, ("f16", 64): 1.24, ("f16", 128): 1.19},
    ("forward", "all"): {("bf16", 64): 1.59, ("bf16", 128): 1.49, ("f16", 64): 1.69, ("f16", 128): 1.57},
    ("backward", "entropy"): {("bf16", 64): 1.13, ("bf16", 128): 1.07, ("f16", 64): 1.13, ("f16", 128): 1.07},
    ("backward", "all"): {("bf16", 64): 2.06, ("bf16", 128): 1.58, ("f16", 64): 2.06, ("f16", 128): 1.58},
}
# The same with the tiles measured on an H200, where a call without statistics has larger ones.
LIMITS_OF_MEASURED = {
    ("forward", "entropy"): {("bf16", 64): 1.0, ("bf16", 128): 1.10},
    ("forward", "all"): {("bf16", 64): 1.45, ("bf16", 128): 1.45},
    ("backward", "entropy"): {("bf16", 64): 1.11, ("bf16", 128): 1.13},
    ("backward", "all"): {("bf16", 64): 2.05, ("bf16", 128): 2.28},
}


class Cost(NamedTuple):
    """A pass with one statistic, or all, beside the same without: its kernels."""

    direction: str
    statistic: str
    kernels: list[Measured]
    without: list[Measured]
    measured_tiles: bool

    @property
    def ratio(self) -> float:
        return sum(x.a_score for x in self.kernels) / sum(x.a_score for x in self.without)

    @property
    def more(self) -> float:
        """Instructions of a thread for a score that the statistic adds."""
        return 32 * (sum(x.a_score for x in self.kernels) - sum(x.a_score for x in self.without))


def costs(
    direction: str, dtype: str, dim: int, names: tuple[str, ...] = tuple(STATISTICS), measured_tiles: bool = False
) -> Iterator[Cost]:
    """Yields the costs of statistics in the plan's tiles for all of them, or in each pass's own measured tiles."""
    backward = direction == "backward"
    with ExitStack() as patches:
        if not measured_tiles:
            patches.enter_context(mock.patch.object(plan, "table_of", lambda *_: tile_table.NONE))
            for table in ("_BARE", "_MOMENTS"):
                patches.enter_context(mock.patch.object(plan, table, {}))
        without = list(static.launched(dtype, dim, LSE, backward))
        for name in names:
            kernels = list(static.launched(dtype, dim, STATISTICS[name], backward))
            yield Cost(direction, name, kernels, without, measured_tiles)


def every_cost(dtype: str, measured_tiles: bool = False) -> list[Cost]:
    """Returns the costs in both passes and all dimensions. Only bf16 has measured tiles."""
    places = [(direction, dtype, dim) for direction in PASSES for dim in static.DIMS]
    return [cost for place in places for cost in costs(*place, measured_tiles=measured_tiles)]


def bars(cost: Cost) -> Iterator[Bar]:
    """Yields the limits of a statistic that has any. Measured tiles may spill."""
    one = cost.kernels[0]
    about = f"{cost.direction}, {cost.statistic}{', measured tiles' * cost.measured_tiles}: "
    for kernel in cost.kernels if not cost.measured_tiles else ():
        yield from (bar._replace(what=about + bar.what) for bar in of_each(kernel))
    if limits := (LIMITS_OF_MEASURED if cost.measured_tiles else LIMITS).get((cost.direction, cost.statistic)):
        what = f"{about}{one.dtype}, d {one.dim}: instructions over those without statistics"
        yield Bar(what, cost.ratio, limits[one.dtype, one.dim])


def table(costs: list[Cost]) -> Iterator[str]:
    """Yields a row for each statistic: what it adds to each pass in each dimension."""
    places = [(direction, dim) for direction in PASSES for dim in static.DIMS]
    yield f"| statistic | {' | '.join(f'{direction}, {dim}' for direction, dim in places)} |"
    yield f"|---|{'---|' * len(places)}"
    by_place = {(x.statistic, x.direction, x.kernels[0].dim): x for x in costs}
    bare = [32 * sum(x.a_score for x in by_place[("all", *place)].without) for place in places]
    yield f"| none | {' | '.join(f'{count:.1f}' for count in bare)} |"
    for name in STATISTICS:
        cells = (by_place[(name, *place)] for place in places)
        yield f"| {name} | {' | '.join(f'{x.more:+.1f}: {x.ratio:.2f}' for x in cells)} |"
