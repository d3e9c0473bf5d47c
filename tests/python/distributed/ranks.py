"""Runs ranks of one group as processes, forked from a server that has imported torch."""

from __future__ import annotations

import functools
import inspect
import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([
    "pytest", "torch._dynamo", "torch.distributed.fsdp", "transformers.models.llama.modeling_llama", "isentrope.distributed",
    "isentrope.hf", "isentrope.models.qk_clip",
])  # fmt: skip


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _rank(
    rank: int, ranks: int, port: int, limit: float, pipe: Any, function: Any, arguments: tuple, to_the_end: bool
) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    try:
        dist.init_process_group("gloo", rank=rank, world_size=ranks, timeout=timedelta(seconds=limit))
        result = getattr(function, "of_rank", function)(rank, *arguments)
        if to_the_end:
            dist.barrier()
            dist.destroy_process_group()
        pipe.send((result, None))
    except BaseException:
        pipe.send((None, traceback.format_exc()))
    pipe.close()
    if not to_the_end:
        os._exit(0)  # skips clean-up of a failed group


def outcomes(ranks: int, function: Any, *arguments: Any, limit: float = 20, to_the_end: bool = False) -> list:
    """Returns function(rank, *arguments) of every rank, or the traceback if it raised or its process ended.

    limit: the group's, in seconds.
    """
    port = _free_port()
    processes, pipes = [], []
    for rank in range(ranks):
        ours, theirs = _context.Pipe(duplex=False)
        arguments_of_rank = (rank, ranks, port, limit, theirs, function, arguments, to_the_end)
        process = _context.Process(target=_rank, args=arguments_of_rank)
        process.start()
        theirs.close()
        processes.append(process)
        pipes.append(ours)
    results = []
    for pipe in pipes:
        try:
            results.append(pipe.recv())
        except EOFError:
            results.append((None, "the process ended"))
    for process in processes:
        process.join()
    return results


def run(ranks: int, function: Any, *arguments: Any, limit: float = 60) -> list:
    """Returns function(rank, *arguments) of every rank. Raises RuntimeError with the tracebacks of failures."""
    results = outcomes(ranks, function, *arguments, limit=limit, to_the_end=True)
    failures = [f"rank {rank}: {error}" for rank, (_, error) in enumerate(results) if error]
    if failures:
        raise RuntimeError("\n".join(failures))
    return [result for result, _ in results]


def over(ranks: int | None = None) -> Callable[[Callable], Callable]:
    """Makes a function a test: every rank calls it with its number and the parameters of the test.

    ranks: how many; None: the test's parameter of that name.
    """

    def decorate(function: Callable) -> Callable:
        def test(**parameters: Any) -> None:
            run(ranks or parameters["ranks"], test, parameters)

        functools.update_wrapper(test, function)
        del test.__wrapped__  # so that pytest reads the signature below
        test.__signature__ = inspect.Signature(list(inspect.signature(function).parameters.values())[1:])
        # Processes find the test by its name, and in it the function.
        test.of_rank = lambda rank, parameters: function(rank, **parameters)
        return test

    return decorate
