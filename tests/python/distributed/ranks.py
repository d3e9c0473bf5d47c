"""Processes that are ranks of one group, for the tests: forked from a server that has torch already."""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["isentrope.distributed"])


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _rank(rank: int, ranks: int, port: int, limit: float, pipe: Any, function: Any, arguments: tuple) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    try:
        dist.init_process_group("gloo", rank=rank, world_size=ranks, timeout=timedelta(seconds=limit))
        result = function(rank, *arguments)
        dist.barrier()
        dist.destroy_process_group()
        pipe.send((result, None))
    except BaseException:
        pipe.send((None, traceback.format_exc()))


def run(ranks: int, function: Any, *arguments: Any, limit: float = 20) -> list:
    """function(rank, *arguments) on every rank, and what each returned. RuntimeError with the traces of those that failed."""
    port = _free_port()
    processes, pipes = [], []
    for rank in range(ranks):
        ours, theirs = _context.Pipe(duplex=False)
        process = _context.Process(target=_rank, args=(rank, ranks, port, limit, theirs, function, arguments))
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
    failures = [f"rank {rank}: {error}" for rank, (_, error) in enumerate(results) if error]
    if failures:
        raise RuntimeError("\n".join(failures))
    return [result for result, _ in results]
