"""Student's t distribution for verdicts and intervals over a few passages or documents."""

import math


def one_sided_p(t: float, df: int) -> float:
    """Returns the probability that Student's t of `df` >= 1 degrees of freedom exceeds `t`.

    For integer `df` it is a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(df))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = df % 2
    term, total = cosine if odd else 1.0, 0.0
    for i in range(1 + odd, df, 2):
        total += term
        term *= cosine**2 * i / (i + 1)
    central = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return (1 - central) / 2


def quantile(df: int) -> float:
    """Returns the 97.5 % quantile of Student's t of `df` >= 1 degrees of freedom, by bisection."""
    low, high = 0.0, 1e3
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if one_sided_p(middle, df) > 0.025 else (low, middle)
    return low
