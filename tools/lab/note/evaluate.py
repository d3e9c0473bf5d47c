"""Evaluates a trained model at several lengths: the same tokens with the same predictions at each."""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from model import RoFormer, Scale
from objective import OBJECTIVES, TRAINED_LENGTH, Batch, Vocabulary
from torch import Tensor

from isentrope import ScaleRule

LENGTHS = (64, 128, 256, 512, 1024)
SEED = 7  # of the masks
TOKENS_AT_ONCE = 65536
BLOCKS = 64  # of the test text, each with its own sums


def reported_text(rule: str) -> str:
    """Returns the rule's name in records."""
    return f"unit({ScaleRule(rule[5:-1])})" if rule.startswith("unit(") else str(ScaleRule(rule))


def frozen(rule: str) -> str:
    """Returns the rule with the scale of longer rows fixed at its value at the trained length."""
    if rule.startswith("unit("):
        return f"unit({frozen(rule[5:-1])})"
    name, _, arguments = rule.partition("(")
    return f"{name}({arguments.removesuffix(')')}{',' if arguments else ''}n_max={TRAINED_LENGTH})"


def scales(rule: str, rescaled: list[str], objective: str) -> Iterator[tuple[str, str, Scale]]:
    """Yields (kind, name of the rule in records, scale) for each evaluation of the model trained with `rule`.

    The kinds are those of docs/result-schema.md. A finished model of the standard scale is also evaluated with each
    rule of `rescaled`. The keys that "near" hides do not count in n.
    """
    own, options = reported_text(rule), OBJECTIVES[objective][1]
    near = (("window_size", (TRAINED_LENGTH - 1, TRAINED_LENGTH - 1)),)
    yield "trained", own, Scale(own, options)
    yield "near", own, Scale(own, options + near)
    if own == "standard":
        for other in rescaled:
            yield "rescaled", reported_text(other), Scale(other, options)
    else:
        yield "frozen", own, Scale(frozen(own), options)


def predictions_of(model: RoFormer, batch: Batch, scale: Scale) -> tuple[Tensor, Tensor, list[float]]:
    """Returns which predictions are right and their losses, in the order of the text, and each layer's mean entropy."""
    right, losses, entropies = [], [], []
    at_once = max(1, TOKENS_AT_ONCE // batch.ids.shape[1])
    for ids, positions, labels in zip(*(x.split(at_once) for x in (batch.ids, batch.positions, batch.labels)), strict=True):
        of_layers: list[Tensor] = []
        with torch.no_grad(), torch.autocast(ids.device.type, torch.bfloat16, enabled=ids.is_cuda):
            logits = model(ids, positions, scale, of_layers).float().flatten(0, 1)
        losses.append(F.cross_entropy(logits, labels.flatten(), reduction="none").double())
        right.append(logits.argmax(-1) == labels.flatten())
        entropies.append(torch.stack(of_layers) * len(ids))
    return torch.cat(right), torch.cat(losses), (torch.stack(entropies).sum(0) / len(batch.ids)).tolist()


def evaluate(
    model: RoFormer, rule: str, rescaled: list[str], objective: str, text: Tensor, vocabulary: Vocabulary,
    say: Callable[[str], None],
) -> dict:
    """Returns the members rows, evaluation and block_predictions of the model's record.

    text: token ids in a row. Reads as many as fill windows of the longest length and blocks of these."""
    longest = LENGTHS[-1]
    blocks = min(BLOCKS, len(text) // longest)
    if not blocks:
        raise ValueError(f"[evaluate] the test text must have {longest} tokens; got {len(text)}")
    text = text[: len(text) // (longest * blocks) * longest * blocks]
    generator = torch.Generator(text.device).manual_seed(SEED)
    batch = OBJECTIVES[objective][0](text.long().view(-1, TRAINED_LENGTH), vocabulary, generator)
    windows = [batch.joined(length) for length in LENGTHS]
    predictions, per_length = batch.labels.numel(), len(LENGTHS)
    rows = []
    for kind, name, scale in scales(rule, rescaled, objective):
        row = {"kind": kind, "rule": name, "tokens": [len(text)] * per_length, "predictions": [predictions] * per_length,
               "accuracy": [], "cross_entropy": [], "entropy": [], "entropy_by_layer": [], "blocks": {"right": [], "loss": []}}  # fmt: skip
        for window in windows:
            right, losses, entropies = predictions_of(model, window, scale)
            row["accuracy"].append(100 * right.double().mean().item())
            row["cross_entropy"].append(losses.mean().item())
            row["entropy"].append(sum(entropies) / len(entropies))
            row["entropy_by_layer"].append(entropies)
            row["blocks"]["right"].append(right.view(blocks, -1).sum(1).tolist())
            row["blocks"]["loss"].append(losses.view(blocks, -1).sum(1).tolist())
        say(f"{kind} {name}: " + ", ".join(f"{x:.2f} % at {n}" for n, x in zip(LENGTHS, row["accuracy"], strict=True)))
        rows.append(row)
    evaluation = {"lengths": list(LENGTHS), "tokens": len(text), "part": "test", "rescaled": [reported_text(x) for x in rescaled]}
    return {"rows": rows, "block_predictions": [[predictions // blocks] * blocks] * per_length, "evaluation": evaluation}
