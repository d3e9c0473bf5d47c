import torch
from torch import nn

import isentrope


class Denoiser(nn.Module):
    """The average velocity of 16 points of the plane, from time r to t."""

    def __init__(self, attend, width=32, heads=4):
        super().__init__()
        self.attend, self.heads = attend, heads
        self.into, self.times = nn.Linear(2, width), nn.Linear(2, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        hidden = nn.Linear(width, 64)
        self.last = nn.Sequential(hidden, nn.SiLU(), nn.Linear(64, 2))

    def forward(self, z, r, t):
        x = self.into(z) + self.times(torch.stack([r, t], -1))[:, None]
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1))
        attended = self.attend(*qkv.permute(2, 0, 3, 1, 4))
        return self.last(x + self.out(attended.transpose(1, 2).flatten(2)))


def train(attend, steps=100):
    torch.manual_seed(0)
    model = Denoiser(attend)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        angle = 2 * torch.pi * torch.rand(32, 16)
        data = torch.stack([angle.cos(), angle.sin()], -1)
        noise = torch.randn(32, 16, 2)
        r, t = torch.rand(2, 32).sort(0).values
        z = torch.lerp(data, noise, t[:, None, None])
        velocity = noise - data
        # The tangent of u along the path; u itself is differentiated too.
        tangents = velocity, torch.zeros_like(r), torch.ones_like(t)
        u, change = torch.func.jvp(model, (z, r, t), tangents)
        target = velocity - (t - r)[:, None, None] * change.detach()
        loss = (u - target).square().mean()
        optimizer.zero_grad(), loss.backward(), optimizer.step()
        yield loss.item()


if __name__ == "__main__":
    losses = list(train(isentrope.attention))
    print(f"loss {losses[0]:.3f} ... {losses[-1]:.3f}")
