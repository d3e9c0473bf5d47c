"""A real model: its perplexity with isentrope is sdpa's, and inspecting it costs little more than running it.

ISENTROPE_SMOLLM2 names the GGUF file that scripts/language-model smollm2 prints, as make test does.
"""

import os
import time
from pathlib import Path

import pytest
import torch

import isentrope
import isentrope.hf
from isentrope.commands.reading import load

CORPUS = Path(__file__).parents[2] / "data/king-james.txt"


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


@pytest.mark.parametrize("length", [256, pytest.param(2048, marks=pytest.mark.long)])
def test_perplexity_is_that_of_sdpa(model_and_tokens, length):
    model, tokens = model_and_tokens
    found = {}
    for name in ("sdpa", "isentrope"):
        model.set_attn_implementation(name)
        found[name] = perplexity(model, tokens[:, :length])
    print(found)
    assert found["isentrope"] == pytest.approx(found["sdpa"], rel=1e-4)


@pytest.mark.long
def test_inspecting_4096_tokens_takes_at_most_three_forward_passes(model_and_tokens):
    model, tokens = model_and_tokens
    tokens = tokens[:, :4096]
    model.set_attn_implementation("sdpa")
    seconds = {"sdpa": [], "inspect": []}
    for _ in range(3):
        for name in seconds:
            start = time.perf_counter()
            if name == "sdpa":
                with torch.no_grad():
                    model.base_model(tokens, use_cache=False)
            else:
                isentrope.inspect(model, [tokens[0]])
            seconds[name].append(time.perf_counter() - start)
    ratio = min(seconds["inspect"]) / min(seconds["sdpa"])
    print(seconds, ratio)
    assert ratio <= 3
