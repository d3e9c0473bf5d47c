"""Measurement functions with invalid values: refused by the argument's name, or successful."""

import tiny_model
import torch
from long_terrible_values import two_tests_of

import isentrope
import isentrope.hf
from isentrope.models import bases, evaluate, retrieval

MODEL = tiny_model.model(num_hidden_layers=1)
TEXTS = tiny_model.tokens(2, 300)
METHODS = [evaluate.Method("none"), evaluate.Method("sharper", rules=[isentrope.ScaleRule("scaled(gain=1.1)")])]
MEASURED = {"model": MODEL, "texts": TEXTS, "progress": None}


def stated(name, rope, rules):
    evaluate.evaluate(MODEL, TEXTS, [evaluate.Method(name, rope, rules)], lengths=(0, 256))


def reading(model):
    with isentrope.hf.reading(model):
        pass


def words(text, return_tensors):
    return {"input_ids": torch.arange(1, len(text))[None]}


def numbers(text, add_special_tokens):
    return {"input_ids": [byte % 61 for byte in text.encode()]}


def asked(tokens, distances, answers):
    retrieval.retrieval(MODEL, retrieval.Prompt(tokens, distances, answers))


QUESTIONS = retrieval.prompt(numbers, TEXTS[0], [60, 200])
CALLS = {
    "inspect": (isentrope.inspect, MEASURED | {"tokenizer": None, "max_length": 100}),
    "inspect of strings": (isentrope.inspect, MEASURED | {"texts": ["a b c d"], "tokenizer": words}),
    "reading": (reading, {"model": MODEL}),
    "calibrate": (
        isentrope.calibrate,
        MEASURED | {"rope": "yarn:2", "per": "layer", "passages": [], "lengths": [], "most_steps": 1, "results": None},
    ),
    "evaluate": (
        evaluate.evaluate,
        {"model": MODEL, "passages": TEXTS, "methods": METHODS, "lengths": (0, 256), "chunk": 128, "results": None,
         "progress": None},
    ),
    "Method": (stated, {"name": "none", "rope": METHODS[0].rope, "rules": METHODS[0].rules}),
    "losses": (evaluate.losses, {"model": MODEL, "tokens": TEXTS[0], "chunk": 128, "first": 64}),
    "bases": (bases.bases, MEASURED),
    "prompt": (retrieval.prompt, {"tokenizer": numbers, "passage": TEXTS[0], "distances": [60, 200], "seed": 1}),
    "retrieval": (retrieval.retrieval, {"model": MODEL, "questions": QUESTIONS, "chunk": 128}),
    "Prompt": (asked, QUESTIONS._asdict()),
}  # fmt: skip
ALSO = {"texts": "text|tokenizer|tokens", "tokens": "tokens|token", "name": "methods?", "rules": "methods?|rules?",
        "rope": "rope|methods"}  # fmt: skip


test_what_is_right_works, test_what_is_terrible_is_refused_by_name_or_works = two_tests_of(CALLS, ALSO, callbacks=("progress",))
