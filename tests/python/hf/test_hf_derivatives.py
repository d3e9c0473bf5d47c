"""Hessian-vector products of transformers' models equal those of the eager attention."""

import pytest
import torch
from families import model_of, padding, tokens


@pytest.mark.parametrize("name", ["llama", "gemma2", "bert"])
def test_hessian_vector_products(name):
    ids, mask = tokens(), padding("right")
    found = []
    for implementation in ("eager", "isentrope"):
        model = model_of(name, implementation)
        leaves = [p for p in model.parameters() if p.requires_grad]
        generator = torch.Generator().manual_seed(3)
        directions = [torch.randn(p.shape, generator=generator) for p in leaves]
        loss = model(input_ids=ids, attention_mask=mask)[0][mask.bool()].square().mean()
        gradients = torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
        along = sum((g * d).sum() for g, d in zip(gradients, directions) if g is not None)
        products = torch.autograd.grad(along, leaves, allow_unused=True)
        found.append([x for x in products if x is not None])
    scale = max(float(x.abs().max()) for x in found[0])
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-5 * scale)
