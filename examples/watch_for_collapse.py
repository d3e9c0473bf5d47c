import torch
from torch import nn
from torch.nn.functional import mse_loss, normalize

import isentrope


class Attention(nn.Module):
    def __init__(self, normalised):
        super().__init__()
        self.project, self.normalised = nn.ModuleList(nn.Linear(64, 64) for _ in "qkv"), normalised

    def forward(self, x):
        q, k, v = (project(x).unflatten(-1, (4, 16)).transpose(1, 2) for project in self.project)
        if self.normalised:
            q, k = normalize(q, dim=-1), normalize(k, dim=-1)
        rule = "cosine(tau=10)" if self.normalised else "standard"
        return isentrope.attention(q, k, v, rule=rule).transpose(1, 2).flatten(2)


for normalised in (False, True):
    torch.manual_seed(0)
    model, x = Attention(normalised), torch.randn(8, 64, 64)
    monitor, optimizer = isentrope.Monitor(model), torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(101):
        with monitor.watch(step % 100 == 0):
            loss = mse_loss(model(x), 3 * x)
        optimizer.zero_grad(), loss.backward(), optimizer.step()
        if monitor.latest:
            print(normalised, step, {name: round(value, 1) for name, value in monitor.latest.summary().items()})
