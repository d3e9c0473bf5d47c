"""Tests whether a model retrieves distant facts: lines with a key and a value, and questions at the end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from isentrope._core.values import check_count, checked_integer, is_integer, shown
from isentrope.models.arguments import check_tokens, checked_list
from isentrope.models.evaluate import losses

_NAMES = (  # words that most tokenizers know and that books are unlikely to assign a number
    "falcon", "harbor", "violet", "copper", "walnut", "glacier", "lantern", "meadow",
    "pepper", "saddle", "tunnel", "velvet", "willow", "zephyr", "anchor", "basalt",
)  # fmt: skip


class Prompt(NamedTuple):
    """Tokens to read, and for each question the distance of its answer and the answer's tokens."""

    tokens: Tensor
    distances: list[int]
    answers: list[slice]


def prompt(tokenizer: Any, passage: Tensor, distances: Sequence[int], seed: int = 1) -> Prompt:
    """Returns the passage with a line inserted for each distance, followed by all questions in random order.

    A line is about `distance` tokens before its own question. Raises ValueError if there are more distances than names,
    or if the passage is shorter than the longest distance. Raises TypeError for arguments of another type.
    """
    check_tokens("retrieval", "passage", passage)
    for distance in checked_list("retrieval", "distances", distances, "integers"):
        check_count("retrieval", "each of the distances", distance, 0)
    checked_integer("retrieval", "seed", seed)
    if len(distances) > len(_NAMES):
        raise ValueError(f"[retrieval] there must be at most {len(_NAMES)} distances; got {len(distances)}")
    if not distances or passage.numel() < max(distances) + 64:
        raise ValueError(
            f"[retrieval] the passage must be longer than the distances; got {passage.numel()} tokens for {distances}"
        )
    chance = random.Random(seed)
    names = chance.sample(_NAMES, len(distances))
    values = [str(chance.randrange(10_000, 100_000)) for _ in distances]

    def ids(text: str) -> list[int]:
        try:
            return list(tokenizer(text, add_special_tokens=False)["input_ids"])
        except (KeyError, TypeError) as error:
            raise TypeError(
                f"[retrieval] tokenizer must give input_ids as those of transformers do; got {shown(tokenizer)}"
            ) from error

    questions = list(range(len(distances)))
    chance.shuffle(questions)
    tail: list[int] = []
    answers: dict[int, slice] = {}
    for index in questions:
        tail += ids(f"\nThe number of {names[index]} is")
        answer = ids(f" {values[index]}")
        answers[index] = slice(len(tail), len(tail) + len(answer))
        tail += answer + ids(".")
    text = passage.tolist()
    # From the nearest on, so that insertions do not move lines already placed.
    for index in sorted(questions, key=lambda index: (distances[index], index)):
        place = len(text) - max(distances[index] - answers[index].start, 0)
        text[place:place] = ids(f"\nThe number of {names[index]} is {values[index]}.\n")
    before = len(text) - 1
    losses_of = [slice(before + answer.start, before + answer.stop) for _, answer in sorted(answers.items())]
    return Prompt(torch.tensor(text + tail), list(distances), losses_of)


def retrieval(model: nn.Module, questions: Prompt, chunk: int = 1024) -> list[float]:
    """Returns the loss of each answer, in nats a token, in the order of the prompt's distances.

    Raises ValueError if there are no answers or one is outside of the tokens, TypeError for other types.
    """
    if not isinstance(questions, Prompt):
        raise TypeError(f"[retrieval] questions must be a Prompt; got {shown(questions)}")
    check_tokens("retrieval", "tokens", questions.tokens)
    answers = _checked_answers(questions)
    first = min(answer.start for answer in answers) + 1
    token_losses = losses(model, questions.tokens, chunk, first)
    return [token_losses[answer.start + 1 - first : answer.stop + 1 - first].mean().item() for answer in answers]


def _checked_answers(questions: Prompt) -> list[slice]:
    answers = checked_list("retrieval", "answers", questions.answers, "slices")
    for answer in answers:
        ends = (answer.start, answer.stop) if isinstance(answer, slice) and answer.step is None else ()
        if not ends or not all(is_integer(end) for end in ends):
            raise TypeError(f"[retrieval] answers must be slices from one integer to another, no step; got {shown(answer)}")
        if not 0 <= answer.start < answer.stop < questions.tokens.numel():
            count = questions.tokens.numel()
            raise ValueError(f"[retrieval] answers must lie within the {count - 1} losses of {count} tokens; got {shown(answer)}")
    if not answers:
        raise ValueError("[retrieval] there must be answers; got none")
    return list(answers)
