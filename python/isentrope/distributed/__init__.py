"""Attention over a sequence that is split over the ranks of a torch.distributed group.

    import torch.distributed as dist
    from isentrope import distributed

    dist.init_process_group("gloo")
    q, k, v = (distributed.shard(x, dim=2) for x in (q, k, v))
    out, stats = distributed.attention(q, k, v, rule="logn(8192)", causal=True, return_stats=True)

Rules use the length of the whole sequence, so results are those of one process. docs/distributed.md describes the methods,
when to use each, and what happens when a rank fails.
"""

from isentrope.distributed.decoding import decode, merge
from isentrope.distributed.functions import attention
from isentrope.distributed.sharding import gather, shard

__all__ = ["attention", "decode", "gather", "merge", "shard"]
