"""Eight ranks: generated problems with every method, and memory against the number of ranks."""

import ctypes
import random
from pathlib import Path

import pytest
import torch
from cases import compare
from ranks import over, run

from isentrope import ScaleRule, distributed

RANKS = 8
RULES = [name for name in ScaleRule.names() if name not in ("constant", "table", "per_row", "closed_form")]


def problem(random_):
    """Returns random options of a call and sizes of its tensors that all methods support."""
    length = random_.choice([0, 1, 5, 8, 16, 31, 64, 100])
    options = {"rule": random_.choice(RULES), "causal": random_.random() < 0.6}
    if random_.random() < 0.4:
        options["window_size"] = (random_.randrange(-1, length + 1), random_.randrange(-1, length + 1))
    if random_.random() < 0.3:
        options["soft_cap"] = random_.choice([1.0, 30.0])
    if random_.random() < 0.3:
        options["sinks"] = torch.linspace(-1, 1, RANKS).requires_grad_()
    if random_.random() < 0.3:
        options["chunk_size"] = random_.randrange(1, length + 2)
    elif random_.random() < 0.4 and options.get("window_size", (-1,))[0] < 0:
        options["prefix_keys"] = torch.tensor([random_.randrange(length + 2) for _ in range(2)])
    kind = random_.random()
    if kind < 0.3:
        ends = [sorted(random_.randrange(length + 1) for _ in range(2)) for _ in range(2)]
        options["key_begin"], options["key_end"] = (torch.tensor(x) for x in zip(*ends))
    elif kind < 0.6:
        cuts = sorted(random_.randrange(length + 1) for _ in range(random_.randrange(6)))
        options["documents"] = torch.tensor([0, *cuts, length])
    sizes = {"heads": RANKS, "kv_heads": random_.choice([1, 2, 8])}
    return length, options, sizes


@pytest.mark.parametrize("method", ["ring", "all_gather", "all_to_all"])
@over(RANKS)
def test_generated_problems(rank, method):
    random_ = random.Random(method)
    for _ in range(200):
        length, options, sizes = problem(random_)
        way = {"method": method, "layout": random_.choice(["contiguous", "zigzag"])}
        compare(rank, RANKS, length, way, options, **sizes)


def peak(rank, ranks):
    """Returns the largest growth of resident memory, in bytes, over a forward and backward pass, inputs included."""
    rows = 512 // ranks

    def pass_over(rows):
        part = [torch.randn(32, 12, rows, 64, requires_grad=True) for _ in range(3)]
        distributed.attention(*part, causal=True, layout="zigzag").sum().backward()

    def resident(key):
        return next(int(line.split()[1]) << 10 for line in status.read_text().splitlines() if line.startswith(key))

    # A fixed threshold, because glibc keeps freed blocks of up to 32 MiB after it has seen some: 40 to 70 MB here.
    mmap_threshold = -3
    assert ctypes.CDLL(None).mallopt(mmap_threshold, 64 << 10) == 1
    status = Path("/proc/self/status")
    pass_over(8)  # warm-up
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    pass_over(rows)
    return resident("VmHWM") - before


def test_memory_of_a_rank_falls_with_their_number():
    # With fewer than four ranks fewer blocks are in flight at once.
    four, eight = (max(run(ranks, peak, ranks)) for ranks in (4, 8))
    assert 0.4 < eight / four < 0.6, (four, eight)
