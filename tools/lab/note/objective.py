"""Training objectives: masked tokens, as in BERT, or the next token."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

TRAINED_LENGTH = 64
MASKED = 10  # per window of 64 tokens: BERT's 15 %


@dataclass(frozen=True)
class Vocabulary:
    size: int
    mask: int
    first_ordinary: int  # tokens before it are special


@dataclass(frozen=True)
class Batch:
    """Token ids [windows, length], and the labels of positions [windows, predictions]."""

    ids: Tensor
    positions: Tensor
    labels: Tensor

    def copy_(self, other: "Batch") -> None:
        for name in ("ids", "positions", "labels"):
            getattr(self, name).copy_(getattr(other, name))

    def joined(self, length: int) -> "Batch":
        """Returns the same tokens and predictions in windows of `length`, each of several consecutive ones."""
        windows = length // self.ids.shape[1]
        offsets = self.ids.shape[1] * torch.arange(windows, device=self.ids.device).repeat_interleave(self.positions.shape[1])
        return Batch(
            self.ids.view(-1, length),
            self.positions.view(-1, len(offsets)) + offsets,
            self.labels.view(-1, len(offsets)),
        )  # fmt: skip


def masked(ids: Tensor, vocabulary: Vocabulary, generator: torch.Generator) -> Batch:
    """Chooses MASKED tokens of each window: 80 % become the mask, 10 % another token, 10 % stay."""
    windows, length = ids.shape
    random = {"device": ids.device, "generator": generator}
    positions = torch.rand(windows, length, **random).topk(MASKED, 1).indices
    labels = ids.gather(1, positions)
    chance = torch.rand(windows, MASKED, **random)
    others = torch.randint(vocabulary.first_ordinary, vocabulary.size, (windows, MASKED), **random)
    replaced = torch.where(chance < 0.8, vocabulary.mask, torch.where(chance < 0.9, others, labels))
    return Batch(ids.scatter(1, positions, replaced), positions, labels)


def causal(ids: Tensor, vocabulary: Vocabulary, generator: torch.Generator) -> Batch:
    """Predicts each token of a window from those before it, except the first, which has none at the trained length."""
    positions = torch.arange(ids.shape[1] - 1, device=ids.device).expand(len(ids), -1)
    return Batch(ids, positions.contiguous(), ids[:, 1:].contiguous())


OBJECTIVES: dict[str, tuple[Any, tuple[tuple[str, Any], ...]]] = {
    "mlm": (masked, ()),
    "causal": (causal, (("causal", True),)),
}
"""Each objective's batches and its options of isentrope.attention."""
