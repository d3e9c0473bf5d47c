import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

import isentrope


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        rule = "entropy_invariant(base=64)"
        out = isentrope.attention(q, k, v, rule=rule, causal=True)
        return x + self.out(out.transpose(1, 2).flatten(2))


text = torch.tensor(list(open("README.md", "rb").read()))
model = nn.Sequential(nn.Embedding(256, 64), Attention(64, 4), Attention(64, 4),
                      nn.Linear(64, 256))
monitor = isentrope.Monitor(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
log = SummaryWriter("results/run")
for step in range(101):
    begins = torch.randint(len(text) - 65, (16,))
    tokens = torch.stack([text[i : i + 65] for i in begins])
    with monitor.watch(step % 50 == 0):
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.mT, tokens[:, 1:])
    optimizer.zero_grad(), loss.backward(), optimizer.step()
    if monitor.latest:
        for name, value in monitor.latest.heads().items():
            log.add_scalar(name, value, step)
