"""Hessians of curvlinops: its linear operator of a model's loss, whose products are a jvp of a gradient under torch.vmap, with this
operator and with torch's definition of attention."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import isentrope
from case import Case, installed

PACKAGES = (
    "curvlinops_for_pytorch==3.0.1", "backpack_for_pytorch==1.7.1", "einops==0.8.2", "einconv==0.1.0", "linear_operator==0.6.1",
    "opt_einsum==3.4.0", "jaxtyping==0.3.11", "wadler_lindig==0.1.8", "scipy", "tqdm",
)  # fmt: skip
TITLE = "Hessians of curvlinops-for-pytorch 3.0.1"


class Reader(torch.nn.Module):
    """A layer of attention between two linear ones, over 7 tokens of width 16."""

    def __init__(self, **options: bool):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(16, 4, batch_first=True)
        self.head = torch.nn.Linear(16, 3)
        self.options = options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.nn.Transformer.generate_square_subsequent_mask(7) if self.options else None
        y, _ = self.attention(x, x, x, attn_mask=mask, need_weights=False, **self.options)
        return self.head(y[:, -1])


def cases(folder: Path) -> Iterator[Case]:
    installed(folder, *PACKAGES)
    for name, model in {"full": Reader, "causal": functools.partial(Reader, is_causal=True)}.items():
        for columns in (1, 3):
            yield Case(f"Hessian times {columns} vectors, {name}", functools.partial(check, model, columns))


def check(model: Callable, columns: int) -> None:
    from curvlinops import HessianLinearOperator

    torch.manual_seed(0)
    reader = model()
    data = [(torch.randn(5, 7, 16), torch.randint(0, 3, (5,))) for _ in range(2)]
    parameters = list(reader.parameters())
    vectors = torch.randn(sum(x.numel() for x in parameters), columns)

    def products() -> torch.Tensor:
        return HessianLinearOperator(reader, torch.nn.CrossEntropyLoss(), parameters, data, check_deterministic=False) @ vectors

    with sdpa_kernel(SDPBackend.MATH):
        want = products()
    with isentrope.sdpa.activate():
        got = products()
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    with isentrope.sdpa.activate("constant(scale=0)"):
        assert not torch.allclose(products(), want, rtol=1e-2), "the rule changes nothing"
