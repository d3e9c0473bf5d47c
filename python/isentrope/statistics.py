"""Statistics of rows, and their packing by the operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from isentrope._core.library import BITS, LSE, STATISTICS, WITH_NEEDS
from isentrope._core.values import shown

StatisticNames = bool | Sequence[str]
"""The statistics that a caller requests: none, all, or some by name."""
# Callers know what they requested, so type checkers see tensors.
_NOT_REQUESTED: Any = None


class Statistics(NamedTuple):
    """Statistics of every row, each [batch, heads, queries], or None if it was not requested.

    All are float32 except `support`, which is int64. Units are nats; `distance` is in keys. All but `max_logit` and
    `support` carry gradients, `lambda_` if the caller passed it. A row that sees no key has lse and max_logit -inf, and 0
    elsewhere. A row with a logit of NaN or +inf has NaN in all but `lambda_` and `support`.
    """

    # <!-- begin statistics -->
    lse: Tensor = _NOT_REQUESTED
    """ln sum_j e^z_j, the log-sum-exp of the row's logits."""
    entropy: Tensor = _NOT_REQUESTED
    """-sum p ln p, the Shannon entropy, in [0, ln support]."""
    collision: Tensor = _NOT_REQUESTED
    """sum p^2, the collision probability, in [1 / support, 1]."""
    variance: Tensor = _NOT_REQUESTED
    """Variance of z under p (the varentropy). Without soft-cap and bias it is -d entropy / d ln lambda."""
    distance: Tensor = _NOT_REQUESTED
    """sum p_j |i - j|, the mean distance in keys from the row's position to those of its keys: small in local heads,
    large in global ones."""
    max_probability: Tensor = _NOT_REQUESTED
    """Largest p_j, e^(max_logit - lse), in [1 / support, 1]. If several keys are largest, which has no derivative, the
    gradient goes to the first."""
    max_logit: Tensor = _NOT_REQUESTED
    """Largest z_j. Divided by lambda it is the largest score."""
    lambda_: Tensor = _NOT_REQUESTED
    """The softmax scale of the row."""
    support: Tensor = _NOT_REQUESTED
    """Number of keys the row sees, without those that a bias of -inf hides."""
    # <!-- end statistics -->

    @property
    def effective_keys(self) -> Tensor:
        """Number of equally weighted keys with the same collision, 1 / collision; inf for empty rows. Needs `collision`."""
        return 1 / _require("effective_keys", "collision", self.collision)

    @property
    def gradient_mass(self) -> Tensor:
        """Half the L1 norm of the softmax Jacobian, lambda (1 - collision) (Su 2023). Needs `lambda_` and `collision`."""
        collision = _require("gradient_mass", "collision", self.collision)
        return _require("gradient_mass", "lambda_", self.lambda_) * (1 - collision)


def _require(what: str, name: str, value: Tensor | None) -> Tensor:
    if value is None:
        raise ValueError(f"[Statistics] return_stats must contain {name!r} for {what}; got none")
    return value


def converted(result: Any, output: Callable[[Tensor], Tensor], statistic: Callable[[Tensor], Tensor]) -> Any:
    """Converts a result of `attention`: the output, and each statistic if there are any."""
    if isinstance(result, Tensor):
        return output(result)
    columns: Any = (x if x is None else statistic(x) for x in result[1])
    return output(result[0]), Statistics(*columns)


ALL = sum(BITS.values())
# max_logit, whose derivative is not implemented, and the constants of a rule.
_DETACHED = {statistic["name"] for statistic in STATISTICS if not statistic["differentiable"]}


def statistic_names(return_stats: bool | Sequence[str]) -> Any:
    """Returns the names that `return_stats` requests; None for no statistics at all."""
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
    """Returns the operators' argument `wanted`: bits of the names, and of what their gradients need."""
    return with_needs(sum(BITS[name] for name in set(names)))


def with_needs(wanted: int) -> int:
    """Returns the bits of `wanted`, of lse, and of what the gradients of these need."""
    for name, bit in BITS.items():
        if wanted & bit:
            wanted |= WITH_NEEDS[name]
    return wanted | LSE


def unpack(names: tuple[str, ...], bits: int, shared: Sequence[Tensor] | Tensor, support: Tensor) -> Statistics:
    """Names the operators' float statistics. shared: a tensor of them, or each of them."""
    by_name: dict[str, Tensor] = {}
    for name in names:
        if name == "support":
            by_name[name] = support
        else:
            place = (bits & (BITS[name] - 1)).bit_count()
            # torch without CUDA takes select on fake CUDA tensors, but no subscript.
            piece = shared.select(0, place) if isinstance(shared, Tensor) else shared[place]
            by_name[name] = piece.detach() if name in _DETACHED else piece
    return Statistics(**by_name)
