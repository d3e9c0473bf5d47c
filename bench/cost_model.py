"""Predicts bytes and seconds of each distributed method from the rates of a machine.

Forward and backward pass of one layer, causal masks in the layout "zigzag". A rank computes at `flops`, and sends and
receives at `bandwidth` each; a message also takes `latency`. `ring` overlaps transfers with computation; the other
methods compute before or after they send.
"""

from typing import NamedTuple

METHODS = ("ring", "all_gather", "all_to_all")


class Machine(NamedTuple):
    flops: float
    """Products and sums per second of one rank, inside attention."""
    bandwidth: float
    """Bytes per second of one rank, in each direction."""
    latency: float
    """Seconds from the call to the first byte."""


class Work(NamedTuple):
    tokens: int
    heads: int
    kv_heads: int
    dim: int
    bytes: int
    """Bytes per element."""
    causal: bool = True


# Relative to the forward pass: the backward pass recomputes the weights and has four more products.
BACKWARD = 2.5


def flops(work: Work) -> float:
    """Operations of the forward pass over all ranks."""
    return 4 * work.dim * work.heads * work.tokens**2 * (0.5 if work.causal else 1)


def received(method: str, work: Work, ranks: int) -> tuple[float, float]:
    """Returns the bytes that a rank receives on average, forward and backward."""
    others = (ranks - 1) / ranks
    keys = 2 * work.kv_heads * work.dim * work.bytes * work.tokens
    if method == "all_to_all":
        heads = work.heads / ranks + max(work.kv_heads / ranks, 1)
        once = 2 * heads * work.dim * work.bytes * work.tokens * others
        return once, once
    # All ranks see each early piece; of two late pieces one is seen by the other rank.
    seen = keys * others * (0.75 if work.causal else 1)
    # Keys again, and float32 gradients of the keys that were seen.
    return seen, seen * (1 + 4 / work.bytes)


def seconds(method: str, work: Work, ranks: int, machine: Machine) -> float:
    """Returns the seconds of forward and backward pass; infinite if there are fewer heads than ranks."""
    if method == "all_to_all" and work.heads % ranks:
        return float("inf")
    total = 0.0
    for products, sent in zip((1.0, BACKWARD), received(method, work, ranks)):
        compute = products * flops(work) / ranks / machine.flops
        transfer = sent / machine.bandwidth
        if method == "ring":
            # The own block first, then for each other block the longer of computation and transfer.
            step = max(compute / ranks, (transfer / max(ranks - 1, 1) + machine.latency))
            total += compute / ranks + (ranks - 1) * step
        else:
            messages = (2 if method == "all_to_all" or products > 1 else 1) * (ranks > 1)
            total += compute + transfer + messages * machine.latency
    return total


def memory(method: str, work: Work, ranks: int) -> float:
    """Returns the bytes of keys and values that a rank holds at once in the forward pass, its own included."""
    keys = 2 * work.kv_heads * work.dim * work.bytes * work.tokens
    if method == "ring":
        return keys / ranks * min(3, ranks)
    return keys if method == "all_gather" else keys / ranks * max(1, ranks / work.kv_heads)


def best(work: Work, ranks: int, machine: Machine) -> str:
    return min(METHODS, key=lambda method: seconds(method, work, ranks, machine))


# Assumed rates of a rank: of the order of large GPUs' data sheets, not measured.
ASSUMED = Machine(flops=400e12, bandwidth=50e9, latency=10e-6)
PLANNED = Work(tokens=0, heads=32, kv_heads=8, dim=128, bytes=2)


def plan(machine: Machine = ASSUMED, work: Work = PLANNED) -> str:
    """Returns a table of milliseconds a layer, for lengths and ranks beyond this machine."""
    lines = ["| tokens | ranks | tokens of a rank | products alone | `ring` | `all_gather` | `all_to_all` | keys held by `ring`, `all_gather` |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for tokens in (1 << 17, 1 << 20, 1 << 23):
        for ranks in (8, 32, 256, 1024):
            each = work._replace(tokens=tokens)
            compute = (1 + BACKWARD) * flops(each) / ranks / machine.flops
            times = {method: seconds(method, each, ranks, machine) for method in METHODS}
            least = min(times.values())
            cells = [
                "" if time == float("inf") else f"**{1e3 * time:.4g}**" if time == least else f"{1e3 * time:.4g}"
                for time in times.values()
            ]
            cache = ", ".join(f"{memory(method, each, ranks) / 2**20:.4g} MiB" for method in METHODS[:2])
            lines.append(
                f"| {tokens} | {ranks} | {tokens // ranks} | {1e3 * compute:.4g} | {' | '.join(cells)} | {cache} |"
            )
    return "\n".join(lines)
