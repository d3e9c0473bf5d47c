"""Norms of values and sums of sinks' gradients, against torch."""

import pytest
import torch

from isentrope.gpu.kernels.gradient_sums import sink_gradient_kernel, value_norms_kernel

BATCH, HEADS, KV_HEADS, QUERIES, KEYS, COLUMNS = 2, 4, 2, 70, 45, 24


def norms_of(v, mask, bias):
    norms = torch.full((BATCH, KV_HEADS, KEYS), -1.0)
    nothing = (0, 0, 0, 0)
    value_norms_kernel[(-(-KEYS // 32) * BATCH * KV_HEADS,)](
        v, norms, norms if mask is None else mask, norms if bias is None else bias, *v.stride(),
        *(nothing if mask is None else mask.stride()), *(nothing if bias is None else bias.stride()),
        HEADS, KV_HEADS, QUERIES, KEYS, COLUMNS,
        COLUMNS=32, ATTN_MASK=mask is not None, BIAS=bias is not None, ROWS=64, KEYS=32,
    )  # fmt: skip
    return norms


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_norms_are_those_of_values_that_some_row_sees(masked, biased):
    torch.manual_seed(1)
    v = torch.randn(BATCH, KV_HEADS, COLUMNS, KEYS).half().transpose(2, 3)
    mask = torch.rand(BATCH, HEADS, QUERIES, KEYS) < 0.01 if masked else None
    bias = torch.randn(1, HEADS, 1, KEYS).expand(BATCH, -1, QUERIES, -1).clone() if biased else None
    seen = torch.ones(BATCH, HEADS, QUERIES, KEYS, dtype=torch.bool)
    if biased:
        bias[torch.rand(bias.shape) < 0.7] = -torch.inf
        seen = seen & (bias > -torch.inf)
    if masked:
        seen = seen & mask
    some = seen.any(2).unflatten(1, (KV_HEADS, -1)).any(2)
    assert not masked or (some.any() and not some.all())
    want = torch.linalg.vector_norm(v, dim=-1, dtype=torch.float32).where(some, 0.0)
    torch.testing.assert_close(norms_of(v, mask, bias), want, rtol=1e-6, atol=0)


def test_a_mask_with_strides_of_zero():
    v, mask = torch.ones(BATCH, KV_HEADS, KEYS, COLUMNS), torch.zeros(KEYS, dtype=torch.bool)
    mask[7] = True
    norms = norms_of(v, mask.expand(BATCH, HEADS, QUERIES, KEYS), None)
    assert torch.equal(norms > 0, mask.expand(BATCH, KV_HEADS, KEYS))


def test_gradients_of_sinks_are_sums_over_rows():
    torch.manual_seed(2)
    by_row, total = torch.randn(3, 5, 200), torch.empty(5)
    sink_gradient_kernel[(5,)](by_row, total, 3, 5, 200, ROWS=64)
    torch.testing.assert_close(total, by_row.double().sum((0, 2)).float(), rtol=1e-5, atol=1e-5)
