"""What a row knows of itself, and how the operators pass it on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from isentrope._core.library import BITS, LSE, STATISTICS, WITH_NEEDS
from isentrope._core.values import shown

StatisticNames = bool | Sequence[str]
"""What a caller asks for: none, all, or some by name."""


class Statistics(NamedTuple):
    """Statistics of every row, each [batch, heads, queries], or None where it was not asked for.

    float32, but `support`, which is int64. In nats, `distance` in keys. `lse`, `entropy`, `collision`, `variance`,
    `distance` and `max_probability` carry gradients; `lambda_` does where the caller gave it. A row that sees no key has lse and max_logit
    -inf, and 0 elsewhere.
    """

    lse: Tensor | None = None
    """ln sum_j e^z_j."""
    entropy: Tensor | None = None
    """-sum p ln p, in [0, ln support]."""
    collision: Tensor | None = None
    """sum p^2, in [1 / support, 1]."""
    variance: Tensor | None = None
    """Of z under p, which is the varentropy: -d entropy / d ln lambda."""
    distance: Tensor | None = None
    """sum p_j |i - j|, from the row's position to those of the keys it attends to: local heads against global ones."""
    max_probability: Tensor | None = None
    """Largest p_j, e^(max_logit - lse), in [1 / support, 1]: the mass of the largest key. Its gradient is that of the
    first of several; where two are largest it has no derivative."""
    max_logit: Tensor | None = None
    """Largest z_j. Divided by lambda_: the largest score."""
    lambda_: Tensor | None = None
    """The softmax scale the row was given."""
    support: Tensor | None = None
    """Keys the row sees."""

    @property
    def effective_keys(self) -> Tensor:
        """1 / collision: as many equal keys would collide as often. Needs `collision`."""
        return 1 / _required("effective_keys", "collision", self.collision)

    @property
    def gradient_mass(self) -> Tensor:
        """lambda (1 - collision): half the L1 norm of the softmax's Jacobian. Needs both (Su 2023)."""
        collision = _required("gradient_mass", "collision", self.collision)
        return _required("gradient_mass", "lambda_", self.lambda_) * (1 - collision)


def _required(what: str, name: str, value: Tensor | None) -> Tensor:
    if value is None:
        raise ValueError(f"[Statistics] {what} needs return_stats to contain {name!r}; got none of it")
    return value


ALL = sum(BITS.values())
# max_logit, whose derivative nobody has asked for yet, and the constants of a rule.
_DETACHED = {statistic["name"] for statistic in STATISTICS if not statistic["differentiable"]}


def statistic_names(return_stats: bool | Sequence[str]) -> tuple[str, ...] | None:
    """What `return_stats` asks for; None for no statistics at all."""
    if return_stats is False:
        return None
    if return_stats is True:
        return Statistics._fields
    try:
        if isinstance(return_stats, Tensor):
            raise TypeError
        names = (return_stats,) if isinstance(return_stats, str) else tuple(return_stats)
    except TypeError:
        raise TypeError(
            f"[attention] return_stats must be a bool or names of statistics; got {shown(return_stats)}"
        ) from None
    for name in names:
        if not isinstance(name, str) or name not in Statistics._fields:
            raise ValueError(
                "[attention] return_stats must be True, False or some of "
                f"{', '.join(Statistics._fields)}; got {shown(name)}"
            )
    return names


def wanted_bits(names: tuple[str, ...]) -> int:
    """The operators' argument `wanted`: the names, and what their gradients need."""
    return with_needs(sum(BITS[name] for name in set(names)))


def with_needs(wanted: int) -> int:
    """The bits of `wanted`, of lse, and of what gradients take up again beside them."""
    for name, bit in BITS.items():
        if wanted & bit:
            wanted |= WITH_NEEDS[name]
    return wanted | LSE


def unpack(names: tuple[str, ...], bits: int, shared: Tensor, support: Tensor) -> Statistics:
    """Names the slices of the tensor in which the operators return their float32 statistics."""
    found: dict[str, Tensor] = {}
    for name in names:
        if name == "support":
            found[name] = support
        else:
            piece = shared.select(0, (bits & (BITS[name] - 1)).bit_count())
            found[name] = piece.detach() if name in _DETACHED else piece
    return Statistics(**found)
