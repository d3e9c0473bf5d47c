import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

import isentrope


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        out = isentrope.attention(q, k, v, rule="entropy_invariant(base=64)", causal=True)
        return x + self.out(out.transpose(1, 2).flatten(2))


text = torch.tensor(list(open("README.md", "rb").read()))
model = nn.Sequential(nn.Embedding(256, 64), Attention(64, 4), Attention(64, 4), nn.Linear(64, 256))
monitor, optimizer = isentrope.Monitor(model), torch.optim.AdamW(model.parameters(), lr=3e-3)
log = SummaryWriter("results/run")
for step in range(101):
    tokens = torch.stack([text[i : i + 65] for i in torch.randint(len(text) - 65, (16,))])
    with monitor.watch(step % 50 == 0):
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:])
    optimizer.zero_grad(), loss.backward(), optimizer.step()
    for name, value in (monitor.latest.heads() if monitor.latest else {}).items():
        log.add_scalar(name, value, step)
