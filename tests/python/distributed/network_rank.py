"""A rank in its own network namespace: network_rank.py RANK RANKS ADDRESS SECONDS

Repeats the same step and compares it with one process, printing each success, and the error when a step fails.
"""

import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import isentrope
from isentrope import distributed

ROWS = 256


def sent_bytes() -> int:
    """Returns the bytes sent by the namespace's only interface, headers included."""
    (line,) = (line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("eth0:"))
    return int(line.split()[9])


def main() -> None:
    rank, ranks, address, seconds = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://{address}", timedelta(seconds=seconds), ranks, rank)
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 4, ROWS * ranks, 32) for _ in range(3))
    part = [distributed.shard(x, 2) for x in (q, k, v)]
    options = {"rule": "logn(64)", "causal": True}
    want = distributed.shard(isentrope.attention(q, k, v, **options), 2)
    for step in range(100_000):
        before, began = sent_bytes(), time.monotonic()
        try:
            got = distributed.attention(*part, **options)
        except RuntimeError as error:
            print(f"reported after {time.monotonic() - began:.1f} s: {error}", flush=True)
            return
        torch.testing.assert_close(got, want)
        if step < 10:  # later output is not read, and a full pipe would block the process
            print(f"step {step} sent {sent_bytes() - before}", flush=True)


main()
