import torch
from torch import nn

import isentrope
from isentrope.models.projections import named


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.wq, self.wk, self.wv, self.wo = nn.LayerNorm(64), *(nn.Linear(64, 64, bias=False) for _ in "qkvo")

    def forward(self, x):
        q, k, v = (w(self.norm(x)).unflatten(-1, (4, 16)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        return x + self.wo(isentrope.attention(q, k, v, causal=True).transpose(1, 2).flatten(2))


text = torch.tensor(list(open("LICENSE", "rb").read()))
for tau in (1e9, 30.0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(256, 64), Attention(), Attention(), nn.LayerNorm(64), nn.Linear(64, 256))
    clip = isentrope.QKClip(model, tau, projections=named(q="wq", k="wk", head_dim=16))
    muon = torch.optim.Muon([p for p in model[1:3].parameters() if p.dim() == 2], lr=0.1, weight_decay=0)
    adam = torch.optim.AdamW([*model[0].parameters(), *model[3:].parameters()], lr=3e-3)
    for step in range(301):
        tokens = torch.stack([text[i : i + 65] for i in torch.randint(len(text) - 65, (16,))])
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:])
        loss.backward(), muon.step(), adam.step(), clip.step(), model.zero_grad()
        step % 100 or print(f"tau {tau:g}, step {step}: loss {loss:.2f}, largest logit {clip.largest.max():.0f}")
