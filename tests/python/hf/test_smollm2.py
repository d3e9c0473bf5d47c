"""A real model: its perplexity with isentrope is sdpa's.

ISENTROPE_SMOLLM2 names the GGUF file that scripts/language-model smollm2 prints, as make test-all does.
"""

import os
from pathlib import Path

import pytest
import torch

import isentrope.hf  # noqa: F401, registers the attention
from isentrope.commands.reading import load

CORPUS = Path(__file__).parents[3] / "data/king-james.txt"


@pytest.fixture(scope="module")
def model_and_tokens():
    if "ISENTROPE_SMOLLM2" not in os.environ:
        pytest.skip("ISENTROPE_SMOLLM2 names no model")
    model, tokenizer, _ = load(Path(os.environ["ISENTROPE_SMOLLM2"]), "inspect")
    tokens = tokenizer(CORPUS.read_text()[:100_000], return_tensors="pt", verbose=False)["input_ids"]
    return model.eval(), tokens


def perplexity(model, tokens):
    with torch.no_grad():
        return torch.nn.functional.cross_entropy(model(tokens).logits[0, :-1], tokens[0, 1:]).exp().item()


@pytest.mark.long
@pytest.mark.parametrize("length", [256, 2048])
def test_perplexity_is_that_of_sdpa(model_and_tokens, length):
    model, tokens = model_and_tokens
    perplexities = {}
    for name in ("sdpa", "isentrope"):
        model.set_attn_implementation(name)
        perplexities[name] = perplexity(model, tokens[:, :length])
    print(perplexities)
    assert perplexities["isentrope"] == pytest.approx(perplexities["sdpa"], rel=1e-4)
