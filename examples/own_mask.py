import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import isentrope

q, k, v = (torch.randn(1, 4, 200, 32) for _ in range(3))
i, j = torch.arange(200)[:, None], torch.arange(200)


def every_second_key(b, h, i, j):
    return (j <= i) & ((i - j) % 2 == 0)


# A mask_mod is a boolean attn_mask; hidden keys do not count in n.
mask = every_second_key(0, 0, i, j)
output, stats = isentrope.attention(
    q, k, v, attn_mask=mask, return_stats=("support",)
)
blocks = create_block_mask(every_second_key, 1, 1, 200, 200, device="cpu")
expected = flex_attention(q, k, v, block_mask=blocks)
print("mask_mod is attn_mask:", torch.allclose(output, expected, atol=1e-5))
print("keys of the last row:", stats.support[0, 0, -1].item())

# A score_mod adds a bias: here, distant keys are penalised.
bias = -0.1 * (i - j).abs().float()
output = isentrope.attention(q, k, v, bias=bias)
expected = flex_attention(
    q, k, v, score_mod=lambda score, b, h, i, j: score - 0.1 * (i - j).abs()
)
print("score_mod is bias:", torch.allclose(output, expected, atol=1e-5))
