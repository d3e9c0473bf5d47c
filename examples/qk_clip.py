import torch
from torch import nn

import isentrope
from isentrope.models.projections import named


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)
        linears = (nn.Linear(64, 64, bias=False) for _ in "qkvo")
        self.wq, self.wk, self.wv, self.wo = linears

    def forward(self, x):
        qkv = (w(self.norm(x)) for w in (self.wq, self.wk, self.wv))
        q, k, v = (y.unflatten(-1, (4, 16)).transpose(1, 2) for y in qkv)
        out = isentrope.attention(q, k, v, causal=True)
        return x + self.wo(out.transpose(1, 2).flatten(2))


text = torch.tensor(list(open("LICENSE", "rb").read()))
for tau in (1e9, 30.0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(256, 64), Attention(), Attention(),
                          nn.LayerNorm(64), nn.Linear(64, 256))
    heads = named(q="wq", k="wk", head_dim=16)
    clip = isentrope.QKClip(model, tau, projections=heads)
    matrices = [p for p in model[1:3].parameters() if p.dim() == 2]
    muon = torch.optim.Muon(matrices, lr=0.1, weight_decay=0)
    others = [*model[0].parameters(), *model[3:].parameters()]
    adam = torch.optim.AdamW(others, lr=3e-3)
    for step in range(301):
        begins = torch.randint(len(text) - 65, (16,))
        tokens = torch.stack([text[i : i + 65] for i in begins])
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.mT, tokens[:, 1:])
        loss.backward(), muon.step(), adam.step(), clip.step()
        model.zero_grad()
        if step % 100 == 0:
            print(f"tau {tau:g}, step {step}: loss {loss:.2f}, "
                  f"largest logit {clip.largest.max():.0f}")
