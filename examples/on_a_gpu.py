import torch

import isentrope

device = "cuda" if torch.cuda.is_available() else "cpu"
shape, options = (1, 8, 512, 64), {"device": device, "requires_grad": True}
q, k, v = (torch.randn(shape, **options) for _ in range(3))
rule = "entropy_invariant(base=512)"
out, stats = isentrope.attention(
    q, k, v, rule=rule, causal=True, return_stats=("entropy",)
)
(out.square().mean() + 0.01 * stats.entropy.mean()).backward()
devices = {x.device for x in (q, out, stats.entropy, q.grad)}
print(f"output, statistics and gradients lie where q does: {len(devices) == 1}")
