"""Bytes sent, against the least possible."""

import itertools

import pytest
import torch
import torch.distributed as dist
from cases import rows_of, tensors
from dense import visible
from programs import ROOT, loaded
from ranks import run

from isentrope import distributed

LENGTH, FLOAT = 48, 4
KEY = FLOAT * 2 * 2 * (8 + 6)  # bytes of a key and its value: batch, heads, dimensions
QUERY = FLOAT * 2 * 4

Sent = loaded("bench/distributed.py").Sent
cost_model = loaded("bench/cost_model.py")


def test_the_cost_model_counts_what_travels():
    for ranks, causal in itertools.product((2, 4, 8), (False, True)):
        work = cost_model.Work(LENGTH, 4, 2, 8, FLOAT, causal)
        keys = sum(least_keys(rank, ranks, "zigzag", {"causal": causal}) for rank in range(ranks)) * FLOAT * 2 * (8 + 8)
        assert cost_model.received("ring", work, ranks) == (keys / ranks, 2 * keys / ranks)
    # A slow network dominates, and more ranks than heads cannot share them.
    slow, fast = (cost_model.seconds("ring", work, 8, cost_model.Machine(1e9, rate, 0)) for rate in (1e3, 1e12))
    assert slow > 2 * fast == pytest.approx(2 * 3.5 * cost_model.flops(work) / 8e9)
    assert cost_model.seconds("all_to_all", work, 8, cost_model.ASSUMED) == float("inf")


def test_the_plan_of_the_page_is_what_the_model_says():
    page = (ROOT / "docs/distributed.md").read_text()
    assert f"<!-- begin plan -->\n{cost_model.plan()}\n<!-- end plan -->" in page, "bench/distributed.py --page"


def least_keys(rank, ranks, layout, mask):
    """Returns the keys of `rank` that the rows of other ranks see, counted once for each such rank."""
    sequence = torch.empty(1, 1, LENGTH, 1)
    seen = visible(sequence, sequence, **mask)[0][0, 0]
    rows = [rows_of(each, ranks, LENGTH, layout) for each in range(ranks)]
    return sum(int(seen[rows[other]][:, rows[rank]].any(0).sum()) for other in set(range(ranks)) - {rank})


MASKS = [
    {}, {"causal": True}, {"window_size": (5, -1)}, {"window_size": (5, 2)}, {"causal": True, "window_size": (5, -1)},
    {"chunk_size": 8}, {"causal": True, "chunk_size": LENGTH // 4}, {"causal": True, "chunk_size": 10}, {"causal": True, "chunk_size": 30},
    {"causal": True, "prefix_keys": 7}, {"causal": True, "prefix_keys": 30},
]  # fmt: skip


def traffic(rank, ranks, cases, sizes):
    """Returns the bytes that this rank sends forward and backward, for each case of `attention`."""
    counts = []
    for options in cases:
        rows = rows_of(rank, ranks, LENGTH, options.get("layout", "contiguous"))
        part = [x.detach()[:, :, rows].requires_grad_() for x in tensors(LENGTH, **sizes)]
        with Sent() as forward:
            results = distributed.attention(*part, **options)
        with Sent() as backward:
            sum(x.sum() for x in torch.utils._pytree.tree_leaves(results) if x is not None).backward()
        counts.append((forward.bytes, backward.bytes))
    return counts


def traffic_of_ranks(ranks, *cases, **sizes):
    """Returns the traffic of each rank, case by case."""
    return list(zip(*run(ranks, traffic, ranks, cases, sizes)))


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_keys_are_sent_to_those_who_see_them_and_to_nobody_else(ranks):
    ways = list(itertools.product(MASKS, ("contiguous", "zigzag"), ("ring", "all_gather")))
    cases = [mask | {"layout": layout, "method": method} for mask, layout, method in ways]
    for (mask, layout, method), by_rank in zip(ways, traffic_of_ranks(ranks, *cases)):
        least = [least_keys(rank, ranks, layout, mask) * KEY for rank in range(ranks)]
        forward, backward = map(list, zip(*by_rank))
        assert forward == least, (layout, mask, method)
        # The keys once more, and gradients of received keys to their owners.
        assert sum(backward) == 2 * sum(least)


def test_gradients_go_home_in_float32():
    least = [least_keys(rank, 2, "contiguous", {}) * KEY for rank in range(2)]
    (by_rank,) = traffic_of_ranks(2, {}, dtype=torch.bfloat16)
    assert by_rank == tuple((bytes_ / 2, bytes_ / 2 + least[1 - rank]) for rank, bytes_ in enumerate(least))


def first_calls(rank):
    """Returns the calls of torch.distributed, in order, by ranks that do not need each other's keys."""
    calls = []
    for name in ("all_reduce", "batch_isend_irecv"):
        original = getattr(dist, name)
        setattr(dist, name, lambda *args, name=name, call=original, **others: calls.append(name) or call(*args, **others))
    part = [x[:, :, rows_of(rank, 2, LENGTH, "contiguous")] for x in tensors(LENGTH)]
    for chunk_size in (LENGTH // 2, LENGTH // 2, LENGTH):
        distributed.attention(*part, chunk_size=chunk_size)
    return calls


def test_the_first_call_of_a_group_is_one_that_all_ranks_make():
    assert run(2, first_calls) == [["all_reduce", "batch_isend_irecv"]] * 2


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_heads_are_dealt_out_once(ranks):
    # All of q, k, v, output and two statistics, except the part that stays.
    least = LENGTH // ranks * QUERY * (8 + 8 + 6 + 6 + 2) * (ranks - 1) // ranks
    by_heads = {"method": "all_to_all", "return_stats": ("entropy", "lse")}
    assert traffic_of_ranks(ranks, by_heads, kv_heads=4) == [((least, least),) * ranks]
