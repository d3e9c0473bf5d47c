"""Two hundred random schedules in which a rank is killed, stopped for half a minute or late, at a message or while
arguments are compared. Every other rank must raise an error that names the phase within the group's time limit. No rank
may hang, and all returned results must be right."""

import os
import random
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from cases import rows_of, tensors, whole
from ranks import outcomes

from isentrope import distributed
from isentrope.distributed import agreement, exchange, ring

LIMIT, PAUSE, STOPPED = 10.0, 1.0, 30
LENGTH = 24
PHASES = ("as arguments are compared", "in the forward pass", "in the backward pass")
METHODS = ("ring", "all_gather", "all_to_all")
SCHEDULES = 200


def schedule(number):
    draw = random.Random(number)
    ranks = draw.choice((2, 4))
    method = draw.choice(METHODS)
    messages = {"ring": 3 * ranks, "all_gather": 4, "all_to_all": 4}[method]
    return {"ranks": ranks, "method": method, "victim": draw.randrange(ranks),
            "what": draw.choice(("killed", "stopped", "late")), "at": draw.randrange(-1, messages)}  # fmt: skip


def strike(what):
    if what == "late":
        time.sleep(PAUSE)
    elif what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        with subprocess.Popen(["sh", "-c", f"sleep {STOPPED}; kill -CONT {os.getpid()}"]):
            os.kill(os.getpid(), signal.SIGSTOP)


def struck_at(at, what):
    """Strikes this rank before the message of that number, or before the comparison for -1."""
    begun = iter(range(1 << 30))

    def before(function, is_it):
        def called(*arguments):
            if is_it():
                strike(what)
            return function(*arguments)

        return called

    agreement._compare = before(agreement._compare, lambda: at < 0)
    exchange.start = ring.start = before(exchange.start, lambda: next(begun) == at)


def right(rank, ranks, method):
    """Runs one call forward and backward. Raises AssertionError if a number differs from one process."""
    whole_inputs = tensors(LENGTH)
    mine = rows_of(rank, ranks, LENGTH, "contiguous")
    part = [x.detach()[:, :, mine].requires_grad_() for x in whole_inputs]
    want, _ = whole(*whole_inputs, {})
    output = distributed.attention(*part, method=method)
    got = output, *torch.autograd.grad(output.sum(), part)
    wanted = want, *torch.autograd.grad(want.sum(), whole_inputs)
    torch.testing.assert_close(list(got), [x[:, :, mine] for x in wanted], rtol=1e-4, atol=1e-5)


def rank_of(rank, ranks, method, victim, what, at):
    """Returns the error of this rank, and the seconds until it; None without an error in two calls."""
    if rank == victim:
        struck_at(at, what)
    for _ in range(2):
        began = time.monotonic()
        try:
            right(rank, ranks, method)
        except RuntimeError as error:
            return str(error), time.monotonic() - began
    return None


def complaint(number):
    """Returns a description of a schedule's failure; None if all is well."""
    chosen = schedule(number)
    arguments = [chosen[name] for name in ("ranks", "method", "victim", "what", "at")]
    for rank, (reported, error) in enumerate(outcomes(chosen["ranks"], rank_of, *arguments, limit=LIMIT)):
        is_victim = rank == chosen["victim"]
        if is_victim and chosen["what"] == "killed":
            good = error == "the process ended"
        elif chosen["what"] == "late":
            good = error is None and reported is None
        else:
            # A victim that continues after its sleep may find its messages waiting.
            good = error is None and (is_victim if reported is None else any(phase in reported[0] for phase in PHASES))
            good = good and (reported is None or is_victim or reported[1] < LIMIT + 5)
        if not good:
            return f"schedule {number}, {chosen}, rank {rank}: {reported} {error}"
    return None


@pytest.mark.parametrize("first", range(0, SCHEDULES, 25))
def test_schedules(first):
    with ThreadPoolExecutor(4) as several:
        assert not [found for found in several.map(complaint, range(first, first + 25)) if found]
