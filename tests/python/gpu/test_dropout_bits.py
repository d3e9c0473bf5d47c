"""Dropout in the Triton kernels: the documented mask with any tiles."""

import pytest
import torch
from dense import dropout_factors

import isentrope

P, SEED = 0.3, -7_000_000_011


# Parts of a sequence that begin at and within groups of four keys.
AT_A_GROUP, WITHIN_A_GROUP = {"query_offset": 11, "key_offset": 4}, {"query_offset": 2, "key_offset": 5}


# Query blocks of one head, rows of several heads in one block, and split keys.
@pytest.mark.parametrize("place", [{}, pytest.param(AT_A_GROUP, marks=pytest.mark.long), WITHIN_A_GROUP])
@pytest.mark.parametrize(
    "heads, kv_heads, queries, keys", [(3, 3, 20, 40), (4, 1, 2, 40), pytest.param(1, 1, 1, 300, marks=pytest.mark.long)]
)
def test_the_mask_is_the_documented_function(heads, kv_heads, queries, keys, place):
    q, k = torch.zeros(2, heads, queries, 16), torch.randn(2, kv_heads, keys, 16)
    # Values that show each weight have as many columns as keys: some of them at a time.
    for first in range(0, keys, 200):
        v = torch.zeros(2, kv_heads, keys, 200)
        v[:, :, first : first + 200] = torch.eye(200)[: keys - first]
        got = isentrope.attention(q, k, v, dropout_p=P, dropout_seed=SEED, **place) * keys
        want = dropout_factors(2, heads, queries, keys, P, SEED, **place)[..., first : first + 200]
        torch.testing.assert_close(got[..., : want.shape[-1]], want.float(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("key_offset", [2**31 - 40, 2**31 - 39, 2**31 + 1, 2**33 - 1])
def test_positions_beyond_32_bits(key_offset):
    """Part of a sequence whose lambda is given, so that no table by length has to reach so far."""
    q, k, v = torch.zeros(1, 1, 5, 16), torch.randn(1, 1, 100, 16), torch.eye(100)[None, None]
    place = {"query_offset": 2**31 - 3, "key_offset": key_offset}
    got = isentrope.attention_rows(q, k, v, torch.ones(1, 1, 5), dropout_p=P, dropout_seed=SEED, **place) * 100
    torch.testing.assert_close(got, dropout_factors(1, 1, 5, 100, P, SEED, **place).float(), rtol=1e-5, atol=0)
