import torch

import isentrope

device = "cuda" if torch.cuda.is_available() else "cpu"
q, k, v = (torch.randn(1, 8, 512, 64, device=device, requires_grad=True) for _ in range(3))
out, stats = isentrope.attention(q, k, v, rule="entropy_invariant(base=512)", causal=True, return_stats=("entropy",))
(out.square().mean() + 0.01 * stats.entropy.mean()).backward()
print(f"output, statistics and gradients lie where q does: {out.device == stats.entropy.device == q.grad.device}")
