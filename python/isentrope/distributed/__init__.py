"""Attention over sequences longer than one machine: each rank of a torch.distributed group holds a part.

    import torch.distributed as dist
    from isentrope import distributed

    dist.init_process_group("gloo")
    q, k, v = (distributed.shard(x, dim=2) for x in (q, k, v))
    out, stats = distributed.attention(q, k, v, rule="logn(8192)", causal=True, return_stats=True)

Rules are told of the whole sequence, so results are those of one process. docs/distributed.md has the ways there are
of computing it, where each wins, and what happens when a rank fails.
"""

from isentrope.distributed.decoding import decode, merge
from isentrope.distributed.functions import attention
from isentrope.distributed.sharding import gather, shard

__all__ = ["attention", "decode", "gather", "merge", "shard"]
