"""Bounds of differences between two computations that differ in rounding only."""

from __future__ import annotations

import torch
from torch import Tensor

from isentrope import Statistics

ULP = 2.0**-24
"""The relative error of one operation in float32."""


class Rounding:
    """Bounds of the differences between two computations of one call, elementwise.

    Each result is a sum over keys or rows of terms of both signs, so its error is relative to the sum of their
    magnitudes. Blocks of keys and ranks add the terms in another order: one ULP of that sum for each. Each term
    contains p = e^(z - lse), whose relative error is the absolute one of its exponent: `exponent` ULPs. These are d
    times the magnitudes in q.k, for any order of addition, and one each of lse and entropy. For sharp rows, whose
    logits are large, this dominates.
    """

    def __init__(self, inputs: list[Tensor], p: Tensor, statistics: Statistics) -> None:
        """inputs: q, k, v; p: [batch, heads, rows, keys], the weights without sinks."""
        q, k, v = (x.detach().double().abs() for x in inputs)
        self.kv_heads, self.p, self.q = k.shape[1], p.double(), q
        each = q.shape[1] // self.kv_heads
        self.k, self.v = (x.repeat_interleave(each, 1) for x in (k, v))
        self.of_row = s = Statistics(*(x.detach().double().nan_to_num(neginf=0)[..., None] for x in statistics))
        # z minus its mean, and the distance of keys from the row's own position.
        self.deviation = torch.where(p > 0, self.p.log() + s.entropy, 0).abs()
        places = torch.arange(q.shape[2])
        self.distance = (places[:, None] - places).abs()
        products = s.lambda_.abs() * (q @ self.k.mT) * (p > 0)
        largest = products.amax(-1, keepdim=True) if products.numel() else products.sum(-1, keepdim=True)
        self.exponent = q.shape[3] * largest + s.lse.abs() + s.entropy
        self.each = ULP * (q.shape[2] * each + q.shape[3] + v.shape[3] + 2 * self.exponent)
        """Rounding error of one term and of adding it to the sum."""
        # Distances are rounded partial sums over the keys of a block, up to 256: docs/contributors/numerics.md.
        self.of_distance = ULP * min(q.shape[2], 256) ** 2 / 2
        # bf16 rounds p and its gradient in products, the ranks' messages, and the result.
        self.of_product = self.each + (2.0**-7 if inputs[0].dtype == torch.bfloat16 else 0)

    def of_output(self) -> Tensor:
        return 2 * self.of_product * (self.p @ self.v)

    def of_statistics(self) -> Statistics:
        s = self.of_row
        mean = (self.p * self.deviation).sum(-1, keepdim=True)
        exponent = ULP * self.exponent
        bounds = Statistics(
            lse=self.each,
            entropy=self.each * (mean + s.entropy) + exponent,
            collision=2 * self.each * s.collision,
            variance=self.each * s.variance + 2 * exponent * (mean + exponent),
            distance=self.each * s.distance + self.of_distance,
            max_probability=self.each * s.max_probability,
            max_logit=exponent,
            lambda_=ULP * s.lambda_.abs(),
            support=0 * s.lse,
        )
        return Statistics(*(2 * x.squeeze(-1) for x in bounds))

    def of_gradients(self, upstream: Tensor, slopes: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Returns the bounds for q, k, v and sinks, whose gradient is one number for each head."""
        s, towards = self.of_row, upstream.double().abs()
        of_output = towards @ self.v.mT
        mean = (self.p * of_output).sum(-1, keepdim=True)
        largest = self.p.amax(-1, keepdim=True) if self.p.numel() else self.p  # there may be no keys
        pulls = {  # contribution of a key to the loss minus the mean over the row
            "lse": 1,
            "entropy": self.deviation,
            "collision": 2 * (self.p + s.collision),
            "variance": self.deviation**2 + s.variance,
            "distance": self.distance + s.distance,
            "max_probability": (self.p == largest) + s.max_probability,
        }
        slope = {name: x.double().abs()[..., None] for name, x in slopes.items()}
        pull = of_output + mean + sum(x * pulls[name] for name, x in slope.items())
        # Errors of z and of the distance as factors.
        slack = (slope["entropy"] + 2 * slope["variance"] * self.deviation) * ULP * self.exponent
        slack = slack + slope["distance"] * self.of_distance
        terms = s.lambda_.abs() * self.p * (pull * self.of_product + slack)

        def of_keys(x: Tensor) -> Tensor:
            return x.unflatten(1, (self.kv_heads, -1)).sum(2)

        of_sinks = (mean * (self.of_product + ULP * mean.shape[0] * mean.shape[2])).sum((0, 2, 3))
        of_q, of_k = terms @ self.k, of_keys(terms.mT @ self.q)
        return 2 * of_q, 2 * of_k, 2 * of_keys((self.p * self.of_product).mT @ towards), 2 * of_sinks
