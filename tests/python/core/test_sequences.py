"""Packed documents, paged caches and merged parts equal plain calls."""

import pytest
import torch
from parted import MASKS, assert_parts_equal_the_whole
from refusals import assert_refused

import isentrope
from isentrope import AttentionState

RULE = "entropy_invariant(base=7)"


@pytest.mark.parametrize("options", [{"causal": True}, {"window_size": (-1, 0)}, {"window_size": (3, 2)}, {"soft_cap": 2.0}])
def test_documents_do_not_see_each_other(options):
    lengths = [(5, 5), (0, 0), (3, 9), (1, 1), (7, 4)]
    queries, keys = (sum(x) for x in zip(*lengths))
    leaves = q, k, v = [torch.randn(*shape, requires_grad=True) for shape in ((queries, 4, 8), (keys, 2, 8), (keys, 2, 6))]
    starts = [torch.tensor([0, *n]).cumsum(0).int() for n in zip(*lengths)]
    output, s = isentrope.varlen_attention(q, k, v, *starts, rule=RULE, return_stats=True, **options)
    assert output.shape == (queries, 4, 6) and s.entropy.shape == (4, queries)
    alone = []
    for a, b, c, d in zip(starts[0][:-1], starts[0][1:], starts[1][:-1], starts[1][1:]):
        one = [x.transpose(0, 1)[None] for x in (q[a:b], k[c:d], v[c:d])]
        want, t = isentrope.attention(*one, rule=RULE, return_stats=True, **options)
        torch.testing.assert_close([x[:, a:b] for x in s], [x[0] for x in t])
        alone.append(want[0].transpose(0, 1))
    results = [(x, *torch.autograd.grad(x.sum(), leaves)) for x in (output, torch.cat(alone))]
    torch.testing.assert_close(*results)


def test_no_documents_are_an_empty_call():
    q, k, none = torch.randn(0, 4, 8, requires_grad=True), torch.randn(0, 2, 8), torch.tensor([0])
    output, s = isentrope.varlen_attention(q, k, k, none, none, return_stats=True)
    assert output.shape == (0, 4, 8) and s.entropy.shape == (4, 0)
    assert torch.autograd.grad(output.sum(), q)[0].shape == q.shape
    with pytest.raises(ValueError, match="cu_seqlens_k must begin with 0 and end with 3; got 0 ... 0"):
        isentrope.varlen_attention(q, *(torch.randn(3, 2, 8),) * 2, none, none)


def test_jagged_tensors_are_documents():
    values, offsets = torch.randn(6, 2, 8), torch.tensor([0, 2, 6])
    x = torch.nested.nested_tensor_from_jagged(values, offsets).transpose(1, 2)
    output, s = isentrope.attention(x, x, x, rule=RULE, causal=True, return_stats=("entropy",))
    want, t = isentrope.varlen_attention(*(values,) * 3, offsets, offsets, rule=RULE, window_size=(-1, 0), return_stats=("entropy",))
    assert output.is_nested and torch.equal(output.values(), want.transpose(0, 1))
    assert torch.equal(s.entropy.values(), t.entropy)


def a_cache(dtype=torch.float32):
    """A decode step, a chunk, a sequence without queries, a whole prompt, and one without keys."""
    queries, used = [1, 9, 0, 30, 2], torch.tensor([40, 33, 20, 30, 0])
    starts = torch.tensor([0, *queries]).cumsum(0).int()
    q = torch.randn(int(starts[-1]), 4, 16, dtype=dtype)
    k_cache, v_cache = torch.randn(20, 2, 8, 16, dtype=dtype), torch.randn(20, 2, 8, 24, dtype=dtype)
    table = torch.randperm(20)[:25 - 5].view(4, 5)
    table = torch.cat([table, table[:1]])
    return q, k_cache, v_cache, starts, table, used


@pytest.mark.parametrize("options", [
    {"causal": True}, {"causal": True, "window_size": (7, 0)}, {}, {"window_size": (6, 2)}, {"soft_cap": 2.0},
    {"causal": True, "sinks": torch.randn(4)}, {"causal": True, "prefix_keys": 12},
    {"causal": True, "prefix_keys": torch.tensor([3, 20, 1, 9, 2])}, {"causal": True, "chunk_size": 8}, {"dilation": 3},
])  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_packed_queries_over_a_cache_are_each_a_decode_step(options, dtype):
    q, k_cache, v_cache, starts, table, used = a_cache(dtype)
    output, s = isentrope.varlen_attention(
        q, k_cache, v_cache, starts, block_table=table, seqused_k=used, rule=RULE, return_stats=True, **options
    )
    assert output.shape == (42, 4, 24) and s.entropy.shape == (4, 42)
    for i, (a, b) in enumerate(zip(starts[:-1], starts[1:])):
        own = dict(options)
        if isinstance(own.get("prefix_keys"), torch.Tensor):
            own["prefix_keys"] = own["prefix_keys"][i : i + 1]
        want, t = isentrope.decode(
            q[a:b].transpose(0, 1)[None], k_cache, v_cache, table[i : i + 1], used[i : i + 1], rule=RULE, return_stats=True,
            **{"causal": False, **own},
        )  # fmt: skip
        assert torch.equal(output[a:b], want[0].transpose(0, 1))
        assert all(torch.equal(got[:, a:b], expected[0]) for got, expected in zip(s, t))


def test_packed_queries_have_a_mask_and_a_bias():
    q, k_cache, v_cache, starts, table, used = a_cache()
    keys = table.shape[1] * k_cache.shape[2]
    options = {"attn_mask": torch.rand(42, keys) < 0.7, "bias": torch.randn(1, 4, 42, keys)}
    output = isentrope.varlen_attention(q, k_cache, v_cache, starts, block_table=table, seqused_k=used, rule=RULE, **options)
    for i, (a, b) in enumerate(zip(starts[:-1], starts[1:])):
        k, v = (x[table[i]].transpose(0, 1).flatten(1, 2)[None, :, : used[i]] for x in (k_cache, v_cache))
        own = {name: x[..., a:b, : used[i]] for name, x in options.items()}
        want = isentrope.attention(q[a:b].transpose(0, 1)[None], k, v, rule=RULE, **own)
        torch.testing.assert_close(output[a:b], want[0].transpose(0, 1))


def test_packed_queries_have_a_cache_in_8_bits():
    q, k_cache, v_cache, starts, table, used = a_cache()
    codes = [isentrope.quantize(x) for x in (k_cache, v_cache)]
    (k8, k_scale), (v8, v_scale) = codes
    options = {"block_table": table, "seqused_k": used, "causal": True}
    got = isentrope.varlen_attention(q, k8, v8, starts, k_scale=k_scale, v_scale=v_scale, **options)
    want = isentrope.varlen_attention(q, *(c * s for c, s in codes), starts, **options)
    torch.testing.assert_close(got, want)


def test_no_sequences_are_an_empty_call():
    q, k_cache, v_cache, *_ = a_cache()
    none = torch.zeros(0, dtype=torch.int64)
    output = isentrope.varlen_attention(q[:0], k_cache, v_cache, torch.tensor([0]), block_table=none.view(0, 3), seqused_k=none)
    assert output.shape == (0, 4, 24)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_new_keys_and_values_are_written_by_slot(dtype):
    k_cache, v_cache = torch.zeros(4, 2, 8, 16, dtype=dtype), torch.zeros(4, 8, 2, 24, dtype=dtype).transpose(1, 2)
    k, v = torch.randn(5, 2, 16, dtype=dtype), torch.randn(5, 2, 24, dtype=dtype, requires_grad=True)
    slots = torch.tensor([30, -1, 8, 9, 0], dtype=torch.int32)
    want = [torch.zeros(4, 8, 2, 16, dtype=dtype), torch.zeros(4, 8, 2, 24, dtype=dtype)]
    for cache, new in zip(want, (k, v)):
        cache.flatten(0, 1)[[30, 8, 9, 0]] = new.detach()[[0, 2, 3, 4]]
    assert isentrope.write_cache(k, v, k_cache, v_cache, slots) is None
    assert torch.equal(k_cache.transpose(1, 2), want[0]) and torch.equal(v_cache.transpose(1, 2), want[1])


def test_a_compiled_step_writes_the_cache_it_reads():
    q, k_cache, v_cache, starts, table, used = a_cache()
    k, v, slots = torch.randn(2, 2, 16), torch.randn(2, 2, 24), torch.stack([table[0, 4] * 8 + 7, table[1, 4] * 8])

    def step(k_cache, v_cache):
        isentrope.write_cache(k, v, k_cache, v_cache, slots)
        return isentrope.varlen_attention(q, k_cache, v_cache, starts, block_table=table, seqused_k=used, causal=True)

    caches = k_cache.clone(), v_cache.clone()
    want = step(k_cache, v_cache)
    assert torch.equal(torch.compile(step, backend="aot_eager", fullgraph=True)(*caches), want)
    assert torch.equal(caches[0], k_cache) and torch.equal(caches[1], v_cache)


@pytest.mark.parametrize("queries, keys", [(5, 5), (3, 9), (7, 4)])
@pytest.mark.parametrize("window", [(-1, 0), (2, 0), (0, 3), (2, 1)])
@pytest.mark.parametrize("causal", [False, True])
def test_a_window_lies_around_the_diagonal_as_in_flash_attention(queries, keys, window, causal):
    """Keys i + keys - queries - left ... i + keys - queries + right, causal or not; (-1, 0) is causal."""
    q, k, v = torch.randn(1, 2, queries, 8), torch.randn(1, 2, keys, 8), torch.randn(1, 2, keys, 8)
    left, right = window
    positions = torch.arange(queries)[:, None] + keys - queries
    key = torch.arange(keys)
    seen = (key <= positions + (0 if causal else right)) & ((key >= positions - left) | (left < 0))
    got, s = isentrope.attention(q, k, v, rule=RULE, causal=causal, window_size=window, return_stats=("support",))
    assert torch.equal(s.support[0, 0], seen.sum(1))
    torch.testing.assert_close(got, isentrope.attention(q, k, v, rule=RULE, attn_mask=seen))
    if window == (-1, 0):
        assert torch.equal(got, isentrope.attention(q, k, v, rule=RULE, causal=True))


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("options", [{}, {"window_size": (5, -1)}, {"sinks": torch.tensor([0.3, 0.0, 1.0, -1.0])}])
def test_decode_reads_pages_as_if_they_lay_in_a_row(options, queries):
    page, lengths = 4, torch.tensor([13, 4, 7])
    table = torch.randperm(12)[: 3 * 4].view(3, 4).int()
    k_cache, v_cache = torch.randn(12, 2, page, 8), torch.randn(12, 2, page, 6)
    q = torch.randn(3, 4, queries, 8)
    output, s = isentrope.decode(q, k_cache, v_cache, table, lengths, rule=RULE, return_stats=True, **options)
    for b, n in enumerate(lengths.tolist()):
        k, v = (x[table[b].long()].transpose(0, 1).flatten(1, 2)[None, :, :n] for x in (k_cache, v_cache))
        want, t = isentrope.attention(q[b : b + 1], k, v, rule=RULE, causal=True, return_stats=True, **options)
        torch.testing.assert_close([x[b : b + 1] for x in (output, *s)], [want, *t])


def test_decode_without_a_table_reads_one_page_a_sequence():
    q, k, v = torch.randn(2, 4, 1, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 6)
    assert torch.equal(isentrope.decode(q, k, v, rule=RULE), isentrope.attention(q, k, v, rule=RULE, causal=True))
    used = torch.tensor([4, 9])
    want = isentrope.attention(q[:1], k[:1, :, :4], v[:1, :, :4], rule=RULE, causal=True)
    assert torch.equal(isentrope.decode(q, k, v, seqused_k=used, rule=RULE)[:1], want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("group", [None, 8])
def test_decode_reads_caches_in_8_bits(dtype, group):
    """8-bit caches read as their dequantized numbers, which are off by at most half a step."""
    q, k, v = torch.randn(3, 4, 1, 32), torch.randn(12, 2, 4, 32), torch.randn(12, 2, 4, 16)
    q, k, v = (x.to(dtype) for x in (q, k, v))
    table, lengths = torch.randperm(12)[: 3 * 4].view(3, 4), torch.tensor([13, 4, 7])
    (k8, k_scale), (v8, v_scale) = isentrope.quantize(k, group), isentrope.quantize(v, group)
    assert k8.dtype is torch.int8 and k_scale.shape == (12, 2, 4, 1 if group is None else 4)

    def widened(codes, scale):
        return (codes.unflatten(3, (scale.shape[3], -1)) * scale.unsqueeze(4)).flatten(3)

    for codes, scale, x in ((k8, k_scale, k), (v8, v_scale, v)):
        largest = x.float().unflatten(3, (scale.shape[3], -1)).abs().amax(4).repeat_interleave(x.shape[3] // scale.shape[3], 3)
        assert ((widened(codes, scale) - x.float()).abs() <= largest / 254 * (1 + 2**-14)).all()
    got, s = isentrope.decode(
        q, k8, v8, table, lengths, k_scale=k_scale, v_scale=v_scale, rule=RULE, return_stats=True
    )  # fmt: skip
    want, t = isentrope.decode(q.float(), widened(k8, k_scale), widened(v8, v_scale), table, lengths, rule=RULE, return_stats=True)
    assert got.dtype is dtype and torch.equal(got, want.to(dtype))
    assert all(torch.equal(a, b) for a, b in zip(s, t))


def test_caches_in_8_bits_are_refused_by_name():
    q, k = torch.randn(1, 2, 1, 8), torch.randn(1, 2, 5, 8)
    codes, scale = isentrope.quantize(k)
    assert_refused(r"\[decode\] k_scale and v_scale must be given", isentrope.decode, q, codes, codes)
    one_missing = r"\[decode\] v_scale must be a float32 tensor; got NoneType"
    assert_refused(one_missing, isentrope.decode, q, codes, codes, k_scale=scale, error=TypeError)
    assert_refused(r"k must be int8; got float32", isentrope.decode, q, k, k, k_scale=scale, v_scale=scale)
    other = {"k_scale": scale, "v_scale": scale[:, :, :4]}
    assert_refused(r"\[decode\] v_scale must have shape", isentrope.decode, q, codes, codes, **other)
    assert_refused(r"\[quantize\] group_size must be a divisor of the 8 columns; got 3", isentrope.quantize, k, 3)


def parts(q, k, v, cuts, **options):
    states, n = [], k.shape[2]
    for a, b in zip([0, *cuts], [*cuts, n]):
        states.append(
            AttentionState(*isentrope.attention(
                q, k[:, :, a:b], v[:, :, a:b], rule=RULE, causal="top_left", query_offset=n - q.shape[2],
                key_offset=a, sequence_keys=n, return_stats=True, **options,
            ))  # fmt: skip
        )
    return states


@pytest.mark.parametrize("cuts", [[4], [0, 17], [3, 3, 9]])
def test_merged_parts_equal_the_whole(cuts):
    q, k, v = (torch.randn(2, 2, s, 8, requires_grad=True) for s in (6, 17, 17))
    want = AttentionState(*isentrope.attention(q, k, v, rule=RULE, causal=True, return_stats=True))
    merged, *rest = parts(q, k, v, cuts)
    for part in rest:
        merged = isentrope.merge(merged, part)
    torch.testing.assert_close(merged.output, want.output)
    torch.testing.assert_close(merged.statistics._asdict(), want.statistics._asdict())

    def gradients(x, name):
        result = x.output.square() if name == "output" else getattr(x.statistics, name)
        return torch.autograd.grad(result.sum(), (q, k, v), retain_graph=True, materialize_grads=True)

    for name in ("output", "entropy", "variance", "max_probability"):
        torch.testing.assert_close(gradients(merged, name), gradients(want, name), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cuts", [[10], [3, 3, 20]])
@pytest.mark.parametrize("mask", MASKS)
def test_merged_parts_equal_the_whole_under_every_mask(mask, cuts):
    assert_parts_equal_the_whole(mask, cuts)


def test_rows_beyond_the_sequence_are_refused():
    q, k = torch.randn(1, 2, 4, 8), torch.randn(1, 2, 22, 8)
    place = {"key_offset": 10, "sequence_keys": 32}
    message = "query_offset must leave the 4 queries within the 32 keys of the sequence under bottom_right; got 29"
    assert_refused(message, isentrope.attention, q, k, k, causal=True, query_offset=29, **place)
    isentrope.attention(q, k, k, causal=True, query_offset=28, **place)
    isentrope.attention(q, k, k, causal="top_left", query_offset=29, **place)


def test_merge_commutes_exactly_and_empty_rows_are_its_identity():
    q, k, v = (torch.randn(2, 2, s, 8) for s in (6, 17, 17))
    a, b = parts(q, k, v, [7])
    for x, y in ((a, b), (b, a)):
        one, other = isentrope.merge(a, b), isentrope.merge(x, y)
        assert torch.equal(one.output, other.output)
        assert all(torch.equal(m, n) for m, n in zip(one.statistics, other.statistics))
    nothing = AttentionState(*isentrope.attention(q, k[:, :, :0], v[:, :, :0], return_stats=True))
    merged = isentrope.merge(nothing, a)
    assert torch.equal(merged.output, a.output) and torch.equal(merged.statistics.entropy, a.statistics.entropy)
    twice = isentrope.merge(nothing, nothing)
    assert torch.equal(twice.output, nothing.output) and (twice.statistics.lse == -torch.inf).all()
    for first in ([-torch.inf] * 2, [0.1, torch.nan]):  # a part without weight, and one with NaN
        q, k, v = torch.ones(1, 1, 1, 1), torch.tensor([*first, 0.5, -0.3]).view(1, 1, 4, 1), torch.arange(4.0).view(1, 1, 4, 1)
        torch.testing.assert_close(isentrope.merge(*parts(q, k, v, [2])), parts(q, k, v, [])[0], equal_nan=True)


def test_a_sink_joins_merged_parts_at_the_end():
    q, k, v = (torch.randn(2, 2, s, 8) for s in (6, 17, 17))
    sinks = torch.tensor([0.5, -1.0])
    state = isentrope.merge(*parts(q, k, v, [7]))
    share = torch.sigmoid(state.statistics.lse - sinks[:, None])
    want = isentrope.attention(q, k, v, rule=RULE, causal=True, sinks=sinks)
    torch.testing.assert_close(state.output * share[..., None], want)


def test_merge_needs_lse_and_one_shape():
    q = torch.randn(1, 1, 2, 4)
    a = AttentionState(*isentrope.attention(q, q, q, return_stats=True))
    without_entropy, without_lse = (a.statistics._replace(**{name: None}) for name in ("entropy", "lse"))
    one_row, shapes = AttentionState(a.output[:, :, :1], a.statistics), r"shape of a, \(1, 1, 2, 4\); got \(1, 1, 1, 4\)"
    assert_refused("entropy where they have variance", isentrope.merge, a, AttentionState(a.output, without_entropy))
    assert_refused("statistics with lse", isentrope.merge, a, AttentionState(a.output, without_lse))
    assert_refused(shapes, isentrope.merge, a, one_row)
