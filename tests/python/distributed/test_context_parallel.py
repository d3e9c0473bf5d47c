"""Attention over a sequence on several ranks equals that of one process, row by row."""

import pytest
import torch
from cases import compare, tensors
from ranks import over
from refusals import assert_refused

import isentrope
from isentrope import ScaleRule, distributed
from isentrope._core.library import CHECKED

RULE = {"rule": "entropy_invariant(base=7)"}
MASKS = [
    {},
    {"causal": True},
    {"causal": True, "window_size": (4, -1)},
    {"window_size": (2, 3)},
    {"key_begin": torch.tensor([0, 3]), "key_end": torch.tensor([14, 9]), "causal": True},
    {"key_begin": torch.tensor([4, 4]), "key_end": torch.tensor([4, 6])},
    {"key_begin": torch.tensor([9, 12]), "causal": True},  # early ranks with rows that see nothing
    {"documents": torch.tensor([0, 2, 2, 9, 10, 17]), "causal": True},
    {"documents": torch.tensor([0, 17]), "window_size": (3, 1)},
    {"documents": torch.tensor([0, 1, 16, 17])},
    {"chunk_size": 5, "causal": True},
    {"chunk_size": 4, "key_begin": torch.tensor([0, 3]), "key_end": torch.tensor([17, 12]), "causal": True},
    {"chunk_size": 6, "window_size": (2, 3)},
    {"chunk_size": 3, "documents": torch.tensor([0, 2, 9, 17]), "causal": True},
    {"prefix_keys": torch.tensor([12, 3]), "causal": True},
    {"prefix_keys": 6, "key_begin": torch.tensor([0, 9]), "key_end": torch.tensor([5, 17]), "causal": True},
    {"prefix_keys": torch.tensor([0, 11]), "window_size": (-1, 1)},
    {"dilation": 3, "causal": True},
    {"dilation": 2, "window_size": (7, 4), "key_begin": torch.tensor([0, 3])},
    {"dilation": 4, "chunk_size": 6, "causal": True},
    {"dilation": 2, "documents": torch.tensor([0, 3, 3, 16, 17]), "causal": True},
    {"prefix_keys": torch.tensor([4, 1]), "documents": torch.tensor([0, 3, 3, 16, 17]), "causal": True},
]
WAYS = [{"method": m, "layout": w} for m in ("ring", "all_gather", "all_to_all") for w in ("contiguous", "zigzag")]
RULES = [  # rules of the position, of the total, after the soft-cap, and for each head
    "attn_temperature_tuning(floor_scale=2)", "log_length(length=total)", "xai_temperature(len=4)",
    "ssmax(s=[0.1, 0.2, 0.3, -0.4])", "standard() * logn(train_len=4)",
]  # fmt: skip


def every_mask(rank, ranks, way):
    for mask in MASKS:
        compare(rank, ranks, 17, way, RULE | mask)


def every_length(rank, ranks, way):
    for length in (0, 1, 3, 8, 13):
        compare(rank, ranks, length, way, RULE | {"causal": True})
    for mask in ({"chunk_size": 2}, {"prefix_keys": torch.tensor([2, 1])}):
        compare(rank, ranks, 3, way, RULE | mask | {"causal": True})


def every_option(rank, ranks, way):
    for rule in RULES:
        compare(rank, ranks, 11, way, {"rule": rule, "causal": True, "soft_cap": 2.0})
    sinks = torch.tensor([0.3, -1.0, 2.0, 0.0], requires_grad=True)
    compare(rank, ranks, 11, way, RULE | {"causal": True, "sinks": sinks})
    compare(rank, ranks, 11, way, RULE | {"sinks": sinks, "key_end": torch.tensor([3, 0])})
    compare(rank, ranks, 11, way, RULE | {"causal": True}, dtype=torch.bfloat16)
    compare(rank, ranks, 11, way, RULE, kv_heads=4)


@pytest.mark.parametrize("ranks", [2, *(pytest.param(ranks, marks=pytest.mark.long) for ranks in (1, 4))])
@pytest.mark.parametrize("cases", [every_option, *(pytest.param(x, marks=pytest.mark.long) for x in (every_mask, every_length))])
@pytest.mark.parametrize("layout", ["zigzag", pytest.param("contiguous", marks=pytest.mark.long)])
@over()
def test_equals_one_process(rank, ranks, cases, layout):
    for method in ("ring", "all_gather", "all_to_all"):
        cases(rank, ranks, {"method": method, "layout": layout})


@pytest.mark.long
@over(2)
def test_every_rule_of_the_catalogue(rank):
    for name in ScaleRule.names():
        if name not in ("constant", "table", "per_row", "closed_form"):
            compare(rank, 2, 9, {"layout": "zigzag"}, {"rule": name, "causal": True})
    table = {"rule": "table(n=[1, 4, 9], factor=[1, 2, 3, 2, 1, 0, 1, 1, 1, 3, 3, 3])"}
    rows = {"rule": "per_row(lambda=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], heads=4)"}
    for rule in (table, rows, {"rule": "constant(scale=0.3)"}):
        for way in WAYS:
            compare(rank, 2, 9, way, rule | {"causal": True})


def test_a_rule_for_each_head_is_cut_with_the_heads():
    assert CHECKED.rule_of_heads("logn(train_len=4)", 1, 2) == "logn(train_len=4)"
    cut = ScaleRule(CHECKED.rule_of_heads("ssmax(s=[1, 2, 3, 4], b=0.5, n_min=2)", 1, 2))
    assert cut == ScaleRule("ssmax(s=[2, 3], b=0.5, n_min=2)")
    product = CHECKED.rule_of_heads("scaled(gain=[1, 2, 3, 4]) * logn(train_len=4)", 2, 2)
    assert ScaleRule(product) == ScaleRule("scaled(gain=[3, 4]) * logn(train_len=4)")


@over(2)
def test_one_of_two_keys_that_are_nearly_equal_is_the_largest(rank):
    """Each of two parts has a key whose logit is within a thousandth of the largest one."""
    q, k = torch.ones(1, 1, 4, 4), torch.zeros(1, 1, 4, 4)
    k[0, 0, 1], k[0, 0, 3] = 2.0, 2.0005
    mine, gradients = slice(2 * rank, 2 * rank + 2), []
    for attention, rows in ((isentrope.attention, slice(None)), (distributed.attention, mine)):
        part = [x[:, :, rows].clone().requires_grad_() for x in (q, k)]
        _, s = attention(*part, q[:, :, rows], return_stats=("max_probability",))
        gradients.append(torch.autograd.grad(s.max_probability.sum(), part))
    torch.testing.assert_close(list(gradients[1]), [x[:, :, mine] for x in gradients[0]])


@pytest.mark.long
@pytest.mark.parametrize("method", ["ring", "all_gather", "all_to_all"])
@over(2)
def test_compiles_without_a_break(rank, method):
    def step(q, k, v):
        output, s = distributed.attention(q, k, v, method=method, causal=True, scale=0.3, return_stats=("entropy", "support"))
        return output * 2, s.entropy, s.support

    graph = torch.compile(step, fullgraph=True, backend="aot_eager")
    for length in (5, 6):
        part = tensors(length)
        results = graph(*part), step(*part)
        torch.testing.assert_close(*((*x, *torch.autograd.grad(x[0].square().sum() + x[1].sum(), part)) for x in results))


@over(2)
def test_bad_arguments_are_named(rank):
    q, k, v = whole = tensors(4)
    starts, of_q = torch.tensor([0, 8]), "q must have the 4 rows of 8 that rank . of 2 holds; got 5"
    fewer_heads, one = [q[:, :3], k[:, :1], v[:, :1]], [x[:, :, : 1 - rank] for x in whole]
    for message, part, options in (
        ("layout must be one of contiguous, zigzag; got 'stripes'", whole, {"layout": "stripes"}),
        ("method must be one of ring, all_gather, all_to_all; got 'star'", whole, {"method": "star"}),
        # Every rank gets the error, whichever has the wrong part.
        *((of_q, [x[:, :, :rows] for x in tensors(6)], {"sequence_length": 8}) for rows in (4 + rank, 5 - rank)),
        ("k must have the 4 rows of q; got 3", [q, k[:, :, :3], v], {}),
        ("must have a multiple of the 2 ranks as heads", fewer_heads, {"method": "all_to_all"}),
        ("documents must be given without key_begin and key_end", whole, {"documents": starts, "key_end": starts}),
        (r"documents must rise from 0 to 8; got \[0, 7\]", whole, {"documents": torch.tensor([0, 7])}),
        # A rank without rows gets the same error.
        *((rf"\[attention\] {next(iter(mask))} must", one, mask | {"sequence_length": 1}) for mask in (
            {"prefix_keys": 2, "chunk_size": 2}, {"prefix_keys": 2, "window_size": (1, 0)}, {"chunk_size": -1},
            {"prefix_keys": torch.ones(3, dtype=torch.long)}, {"key_end": starts[:1]},
        )),
    ):  # fmt: skip
        assert_refused(message, distributed.attention, *part, **options)
    assert_refused("forward-mode", torch.func.jvp, lambda q: distributed.attention(q, k, v), (q,), (q,), error=NotImplementedError)
    output = distributed.attention(*(x.double() for x in whole))
    both = isentrope.attention(*(torch.cat([x, x], 2).double() for x in whole))
    torch.testing.assert_close(output, both[:, :, :4], rtol=0, atol=1e-12)
    assert_refused("are not implemented in float64", output.sum().backward, error=NotImplementedError)
    (dq,) = torch.autograd.grad(distributed.attention(q, k, v).sum(), q, create_graph=True)
    assert_refused("double backward", dq.sum().backward, error=NotImplementedError)
