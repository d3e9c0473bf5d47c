"""A rank that disagrees: an error on every rank within the group's time limit. long_faults has ranks that end and hang."""

import time

import pytest
import torch
from cases import tensors
from ranks import outcomes

from isentrope import distributed
from isentrope.distributed import agreement

LIMIT = 4.0
METHODS = ["ring", "all_gather", "all_to_all"]


def error_of(function):
    """Returns the error of a rank and the seconds until it; None without an error."""
    began = time.monotonic()
    try:
        function()
    except (RuntimeError, ValueError) as error:
        return type(error).__name__, str(error), time.monotonic() - began


def check(results, kind, text):
    for rank, (result, error) in enumerate(results):
        assert error is None and result is not None, f"rank {rank}: {error or 'nothing was raised'}"
        assert result[0] == kind and text in result[1], f"rank {rank}: {result}"
        assert result[2] < LIMIT + 4, f"rank {rank}: {result}"


def called(**options):
    part = [x.detach().requires_grad_() for x in tensors(options.pop("length", 4), heads=3, kv_heads=3)]
    return distributed.attention(*part, **options)


DIFFERENCES = [  # the arguments of rank 1, and what all ranks are told
    ({"rule": "logn(4)"}, "rule 'standard' on rank 0 and 'logn(4)' on rank 1"),
    ({"causal": True}, "causal False on rank 0 and True on rank 1"),
    ({"length": 5}, "sequence_length 12 on rank 0 and 15 on rank 1"),
    ({"method": "all_to_all"}, "method 'ring' on rank 0 and 'all_to_all' on rank 1"),
    ({"window_size": (2, 0)}, "window_left -1 on rank 0 and 2 on rank 1"),
    ({"chunk_size": 2}, "chunk_size 0 on rank 0 and 2 on rank 1"),
    ({"return_stats": ("entropy",)}, "statistics 0 on rank 0 and 3 on rank 1"),
    ({"sinks": torch.zeros(3)}, "given [] on rank 0 and ['sinks'] on rank 1"),
    ({}, "version 'of a build tree' on rank 0 and '0.0.0' on rank 1"),
]


def disagrees(rank):
    """Returns the errors of calls in which rank 1 disagrees, and the shape of the output of one in which it does not."""
    errors, version = [], agreement.version
    for options, difference in DIFFERENCES:
        if rank == 1 and difference.startswith("version"):
            agreement.version = lambda: "0.0.0"
        errors.append(error_of(lambda: called(**options if rank == 1 else {})))
    agreement.version = version
    return errors, called(rule="logn(4)").shape


def test_ranks_that_disagree_are_told_and_can_go_on():
    results = outcomes(3, disagrees, limit=LIMIT)
    assert all(error is None and found[1] == (2, 3, 4, 6) for found, error in results), results
    for index, (_, difference) in enumerate(DIFFERENCES):
        of_ranks = [found[0][index] for found, _ in results]
        check([(error, None) for error in of_ranks], "ValueError", "all ranks must call with the same arguments; got ")
        assert all(difference in error[1] for error in of_ranks), of_ranks


def crosses(rank, method):
    """Both configurations were compared before, so only the messages can reveal the mismatch."""
    for length in (4, 8):
        called(method=method, length=length)
    return error_of(lambda: called(method=method, length=4 if rank else 8))


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_ranks_that_call_with_other_arguments_than_each_other_later(method):
    check(outcomes(3, crosses, method, limit=LIMIT), "RuntimeError", "within the group's time limit")


def decodes(rank, options):
    part = [x.detach() for x in tensors(4)]
    return error_of(lambda: distributed.decode(*part, **{"key_offset": 4 * rank, "sequence_keys": 8} | (options if rank else {})))


@pytest.mark.parametrize("options", [{"scale": 0.1}, {"window_size": (2, 0)}, {"sequence_keys": 9}, {"sinks": torch.zeros(4)}])
def test_decode_steps_with_other_options_are_not_merged(options):
    check(outcomes(2, decodes, options, limit=1.0), "RuntimeError", "called with other arguments")
