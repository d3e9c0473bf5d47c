import torch
from torch import nn
from torch.nn.functional import mse_loss, normalize

import isentrope


class Attention(nn.Module):
    def __init__(self, normalised):
        super().__init__()
        self.normalised = normalised
        self.project = nn.ModuleList(nn.Linear(64, 64) for _ in "qkv")

    def forward(self, x):
        heads = (project(x).unflatten(-1, (4, 16)) for project in self.project)
        q, k, v = (y.transpose(1, 2) for y in heads)
        if self.normalised:
            q, k = normalize(q, dim=-1), normalize(k, dim=-1)
        rule = "cosine(tau=10)" if self.normalised else "standard"
        out = isentrope.attention(q, k, v, rule=rule)
        return out.transpose(1, 2).flatten(2)


for normalised in (False, True):
    torch.manual_seed(0)
    model, x = Attention(normalised), torch.randn(8, 64, 64)
    monitor = isentrope.Monitor(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(101):
        with monitor.watch(step % 100 == 0):
            loss = mse_loss(model(x), 3 * x)
        optimizer.zero_grad(), loss.backward(), optimizer.step()
        if monitor.latest:
            found = monitor.latest.summary().items()
            print(normalised, step, {name: round(x, 1) for name, x in found})
