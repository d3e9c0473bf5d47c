"""What a row knows of itself, and how the operators pass it on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor


class Statistics(NamedTuple):
    """Statistics of every row, each [batch, heads, queries], or None where it was not asked for.

    float32, but `support`, which is int64. In nats. `lse`, `entropy`, `collision` and `variance` carry gradients;
    `lambda_` does where the caller gave it. A row that admits no key has lse and max_logit -inf, and 0 elsewhere.
    """

    lse: Tensor | None = None
    """ln sum_j e^z_j."""
    entropy: Tensor | None = None
    """-sum p ln p, in [0, ln support]."""
    collision: Tensor | None = None
    """sum p^2, in [1 / support, 1]."""
    variance: Tensor | None = None
    """Of z under p, which is the varentropy: -d entropy / d ln lambda."""
    max_logit: Tensor | None = None
    """Largest admitted z_j. Divided by lambda_: the largest score."""
    lambda_: Tensor | None = None
    """The softmax scale the row was given."""
    support: Tensor | None = None
    """Keys the row admits."""

    @property
    def effective_keys(self) -> Tensor:
        """1 / collision: as many equal keys would collide as often. Needs `collision`."""
        return 1 / _asked("effective_keys", "collision", self.collision)

    @property
    def gradient_mass(self) -> Tensor:
        """lambda (1 - collision): half the L1 norm of the softmax's Jacobian. Needs both (Su 2023)."""
        collision = _asked("gradient_mass", "collision", self.collision)
        return _asked("gradient_mass", "lambda_", self.lambda_) * (1 - collision)


def _asked(what: str, name: str, value: Tensor | None) -> Tensor:
    if value is None:
        raise ValueError(f"[Statistics] {what} needs return_stats to contain {name!r}; got none of it")
    return value


LSE, SUPPORT = 1 << 0, 1 << Statistics._fields.index("support")
ALL = (1 << len(Statistics._fields)) - 1
# Constants of a rule, and the derivative of a maximum, which nobody has asked for yet.
_WITHOUT_GRADIENT = ("max_logit", "lambda_")


def wanted_bits(return_stats: bool | Sequence[str]) -> int:
    """The operators' argument `wanted`. The backward pass needs lse, so it is always there."""
    if return_stats is True:
        return ALL
    if isinstance(return_stats, str):
        return_stats = (return_stats,)
    bits = LSE
    for name in return_stats:
        if name not in Statistics._fields:
            raise ValueError(
                "[attention] return_stats must be True, False or some of "
                f"{', '.join(Statistics._fields)}; got {name!r}"
            )
        bits |= 1 << Statistics._fields.index(name)
    return bits


def unpack(return_stats: bool | Sequence[str], bits: int, shared: Tensor, support: Tensor) -> Statistics:
    """Names the slices of the tensor in which the operators return their float32 statistics."""
    found: dict[str, Tensor] = {}
    for index, name in enumerate(Statistics._fields[:-1]):
        if bits >> index & 1:
            piece = shared.select(0, (bits & ((1 << index) - 1)).bit_count())
            found[name] = piece.detach() if name in _WITHOUT_GRADIENT else piece
    if bits & SUPPORT:
        found["support"] = support
    if return_stats is not True and "lse" not in return_stats:
        del found["lse"]
    return Statistics(**found)
