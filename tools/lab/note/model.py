"""RoFormer in plain PyTorch, with `isentrope.attention` in place of `scaled_dot_product_attention`."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import isentrope


@dataclass(frozen=True)
class Size:
    layers: int
    width: int
    heads: int

    @property
    def dim(self) -> int:
        """Dimension of a head."""
        return self.width // self.heads


ROFORMER_SMALL = Size(layers=6, width=384, heads=6)
TINY = Size(layers=2, width=64, heads=1)


@dataclass(frozen=True)
class Scale:
    """The softmax scale and the mask of a call.

    `rule` is the text of an isentrope.ScaleRule. In `unit(RULE)` it multiplies cosines: q and k have length 1.
    `options` are passed on to isentrope.attention.
    """

    rule: str
    options: tuple[tuple[str, Any], ...] = ()

    def attend(self, q: Tensor, k: Tensor, v: Tensor, return_stats: Any = False) -> Any:
        rule = self.rule
        if rule.startswith("unit("):
            rule, q, k = rule[len("unit(") : -1], F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        return isentrope.attention(q, k, v, rule=rule, return_stats=return_stats, **dict(self.options))


def rotations(length: int, dim: int, device: torch.device) -> Tensor:
    """Returns cosines and sines of the rotary angles, float32 [2, length, dim]."""
    frequencies = 10000.0 ** (-torch.arange(0, dim, 2, device=device) / dim)
    angles = torch.outer(torch.arange(length, device=device), frequencies).repeat_interleave(2, -1)
    return torch.stack((angles.cos(), angles.sin()))


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Applies RoPE to x [..., length, dim]."""
    cosines, sines = table.to(x.dtype)
    quarter_turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return x * cosines + quarter_turned * sines


class Layer(nn.Module):
    """Post-norm layer, as in BERT and RoFormer."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        width = size.width
        self.size = size
        self.qkv, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor, table: Tensor, scale: Scale, entropies: list[Tensor] | None) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.size.heads, self.size.dim).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, table), rotate(k, table)
        if entropies is None:
            out = scale.attend(q, k, v)
        else:
            out, stats = scale.attend(q, k, v, return_stats=("entropy",))
            entropies.append(stats.entropy.double().mean())
        x = self.attention_norm(x + self.output(out.transpose(1, 2).reshape(batch, length, width)))
        return self.feed_forward_norm(x + self.down(F.gelu(self.up(x))))


class RoFormer(nn.Module):
    """A language model whose output layer is its embedding."""

    def __init__(self, size: Size, vocabulary: int) -> None:
        super().__init__()
        self.size, self.vocabulary = size, vocabulary
        self.embedding, self.embedding_norm = nn.Embedding(vocabulary, size.width), nn.LayerNorm(size.width)
        self.layers = nn.ModuleList(Layer(size) for _ in range(size.layers))
        self.head, self.head_norm = nn.Linear(size.width, size.width), nn.LayerNorm(size.width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.trunc_normal_(module.weight, std=0.02, a=-0.04, b=0.04)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, ids: Tensor, positions: Tensor, scale: Scale, entropies: list[Tensor] | None = None) -> Tensor:
        """Returns the logits at some positions of each window.

        ids: int64 [windows, length]. positions: int64 [windows, predictions]. The result is [windows, predictions,
        vocabulary]. Appends to `entropies`, if given, the mean entropy of each layer's rows, in nats.
        """
        x = self.embedding_norm(self.embedding(ids))
        table = rotations(ids.shape[1], self.size.dim, ids.device)
        for layer in self.layers:
            x = layer(x, table, scale, entropies)
        x = x.gather(1, positions[..., None].expand(-1, -1, x.shape[-1]))
        return F.linear(self.head_norm(F.gelu(self.head(x))), self.embedding.weight, self.bias)
