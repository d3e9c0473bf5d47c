import torch
import torch.distributed as dist

from isentrope import attention, distributed

dist.init_process_group("gloo")                      # "nccl" on GPUs
torch.manual_seed(0)
q, k, v = (torch.randn(1, 4, 1000, 64) for _ in range(3))
options = {"rule": "entropy_invariant(base=512)", "causal": True}

mine = [distributed.shard(x, dim=2, layout="zigzag").requires_grad_() for x in (q, k, v)]
out = distributed.attention(*mine, layout="zigzag", sequence_length=1000, **options)
out.square().mean().backward()

whole = distributed.gather(out, dim=2, layout="zigzag", sequence_length=1000)
alone = attention(q, k, v, **options)
print(f"rank {dist.get_rank()}: {out.shape[2]} rows of 1000, as in one process: {torch.allclose(whole, alone, atol=1e-5)}")
dist.destroy_process_group()
