import torch
import torch.distributed as dist

from isentrope import attention, distributed

if not dist.is_torchelastic_launched():
    raise SystemExit(f"usage: torchrun --nproc-per-node 2 {__file__}")
dist.init_process_group("gloo")  # "nccl" on GPUs
torch.manual_seed(0)
q, k, v = (torch.randn(1, 4, 1000, 64) for _ in range(3))
options = {"rule": "entropy_invariant(base=512)", "causal": True}

spread = {"layout": "zigzag", "sequence_length": 1000}
mine = [distributed.shard(x, dim=2, layout="zigzag") for x in (q, k, v)]
mine = [x.requires_grad_() for x in mine]
out = distributed.attention(*mine, **spread, **options)
out.square().mean().backward()

whole = distributed.gather(out, dim=2, **spread)
alone = attention(q, k, v, **options)
same = torch.allclose(whole, alone, atol=1e-5)
print(f"rank {dist.get_rank()}: {out.shape[2]} rows of 1000, "
      f"as in one process: {same}")
dist.destroy_process_group()
