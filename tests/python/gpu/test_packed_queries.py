"""Packed queries over a paged cache, and writing to it, in the interpreter."""

import functools

import pytest
import torch
from refusals import assert_refused
from test_front_doors import assert_as_on_the_cpu

import isentrope
import isentrope.gpu

STARTS = [0, 1, 10, 10, 40, 42]
USED = torch.tensor([40, 33, 20, 30, 0])


def a_cache(dtype=torch.float32):
    torch.manual_seed(0)
    pages = torch.randn(2, 25, 2, 8, 16).to(dtype)
    return torch.randn(42, 6, 16).to(dtype), *pages, torch.randperm(25).view(5, 5).int()


def test_each_sequence_is_a_decode_step_with_its_own_prefix():
    q, k_cache, v_cache, table = a_cache()
    prefixes, options = torch.tensor([3, 20, 1, 9, 2]), {"causal": True, "rule": "log_length", "return_stats": True}
    output, s = isentrope.gpu.varlen_attention(
        q, k_cache, v_cache, torch.tensor(STARTS), block_table=table, seqused_k=USED, prefix_keys=prefixes, **options
    )
    for i, (a, b) in enumerate(zip(STARTS[:-1], STARTS[1:])):
        if a == b:
            continue
        own = (table[i : i + 1], USED[i : i + 1])
        want, t = isentrope.gpu.decode(q[a:b].transpose(0, 1)[None], k_cache, v_cache, *own, prefix_keys=prefixes[i : i + 1], **options)
        torch.testing.assert_close(output[a:b], want[0].transpose(0, 1))
        torch.testing.assert_close([x[:, a:b] for x in s], [x[0] for x in t])


def test_a_bias_and_a_mask_have_a_row_for_each_query():
    q, k_cache, v_cache, table = a_cache()
    options = {"bias": torch.randn(1, 6, 42, 40), "attn_mask": torch.rand(42, 40) < 0.7, "return_stats": True}
    call = functools.partial(isentrope.varlen_attention, block_table=table, seqused_k=USED, **options)
    assert_as_on_the_cpu(lambda: call(q, k_cache, v_cache, torch.tensor(STARTS)), rtol=1e-4, atol=1e-5)


def test_starts_that_are_no_starts_stay_within_the_call():
    """A device does not check them."""
    q, k_cache, v_cache, table = a_cache()
    for starts in ([-5, 1, 10, 10, 40, 42], [0, 50, 10, 10, 40, 99], [9, 8, 7, 6, 5, 4]):
        output = isentrope.gpu.varlen_attention(q, k_cache, v_cache, torch.tensor(starts), block_table=table, seqused_k=USED)
        assert output.shape == q.shape


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_tokens_are_written_to_their_slots(dtype):
    _, k_cache, v_cache, _ = a_cache(dtype)
    k, v = torch.randn(2, 4, 2, 16).to(dtype)
    want = [x.transpose(1, 2).contiguous() for x in (k_cache, v_cache)]
    for cache, new in zip(want, (k, v)):
        cache.flatten(0, 1)[[199, 8, 9]] = new[[0, 2, 3]]
    isentrope.gpu.write_cache(k, v, k_cache, v_cache, torch.tensor([199, -1, 8, 9], dtype=torch.int32))
    assert torch.equal(k_cache.transpose(1, 2), want[0]) and torch.equal(v_cache.transpose(1, 2), want[1])
    isentrope.gpu.write_cache(k, v, k_cache, v_cache, torch.tensor([200, 1 << 40, -7, -1]))
    assert torch.equal(k_cache.transpose(1, 2), want[0])
    message = r"\[write_cache\] v must have shape \[1, 2, 4, 16\]; got \[1, 2, 3, 16\]"
    assert_refused(message, isentrope.gpu.write_cache, k, v[:3], k_cache, v_cache, torch.tensor([0, 1, 2, 3]))
