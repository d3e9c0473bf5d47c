"""Losses by position, their differences and errors, the results file, and questions far from their answers."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers as hf
from refusals import assert_refused
from tiny_model import CONFIG, model, tokens

import isentrope
from isentrope.commands.evaluate import table
from isentrope.models import evaluate as evaluation
from isentrope.models import retrieval
from isentrope.models.student import one_sided_p


@pytest.mark.parametrize(
    "chunk, config",
    [(64, hf.LlamaConfig(**CONFIG)), (100, hf.GraniteConfig(**CONFIG, logits_scaling=0.05)),
     (1024, hf.CohereConfig(**CONFIG, logit_scale=9.0)), (300, hf.OPTConfig(**CONFIG, ffn_dim=48, word_embed_proj_dim=32)),
     (700, hf.ModernBertDecoderConfig(**CONFIG, pad_token_id=0)), (700, hf.Llama4TextConfig(**CONFIG, num_local_experts=2))],
)  # fmt: skip
def test_losses_in_chunks_are_those_of_one_pass(chunk, config):
    llama, (text,) = hf.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval(), tokens(1, 700)
    with torch.no_grad():
        want = torch.nn.functional.cross_entropy(llama(text[None, :-1]).logits[0], text[1:], reduction="none")
    llama.set_attn_implementation("isentrope")
    for first in (1, 65, 130, 699):
        losses = evaluation.losses(llama, text, chunk, first)
        torch.testing.assert_close(losses, want[first - 1 :], rtol=1e-4, atol=1e-4)
    assert all("forward" not in vars(module) for module in llama.modules()), "the model is left as it was"
    llama.forward = lambda **_: hf.modeling_outputs.CausalLMOutput()
    assert_refused("model must call its base_model or decoder; got .*ForCausalLM", evaluation.losses, llama, text[:257])


def test_differences_are_paired_and_their_errors_over_blocks_and_passages():
    results = evaluation.Results(None, {})
    for passage, (a, b) in enumerate([(3.0, 2.9), (4.0, 3.8)]):
        results.add("a", passage, [a] * 4)
        results.add("b", passage, [b, b, b - 0.1, b - 0.1])
    methods = [evaluation.Method("a"), evaluation.Method("b")]
    differences = evaluation.compare(results, methods, 2, [0, 512, 1024])
    late = differences[-1]
    gaps = torch.tensor([-0.2, -0.2, -0.3, -0.3], dtype=torch.float64)
    assert (late.method, late.first, late.last) == ("b", 512, 1024)
    assert late.difference == pytest.approx(-0.25) and late.mean == pytest.approx(3.25)
    assert late.se == pytest.approx(gaps.std().item() / 2)
    assert late.se_passages == pytest.approx(torch.tensor([-0.2, -0.3]).std().item() / math.sqrt(2))
    assert late.passages == 2 and not evaluation.beats(late)
    assert all(map(math.isnan, late.interval)) and late.to_dict()["low"] is None


def difference_of(gaps):
    """Returns the difference of a method whose loss is higher by a gap for each passage."""
    results = evaluation.Results(None, {})
    for passage, gap in enumerate(gaps):
        results.add("a", passage, [4.0] * 2)
        results.add("b", passage, [4.0 + gap] * 2)
    return evaluation.compare(results, [evaluation.Method("a"), evaluation.Method("b")], len(gaps), [0, 512])[-1]


def test_the_interval_over_passages_is_students():
    difference = difference_of([0.1, 0.2, 0.3])
    reach = 4.302653 * 0.1 / math.sqrt(3)
    assert difference.interval == pytest.approx((0.2 - reach, 0.2 + reach), abs=1e-6)
    assert difference.to_dict()["high"] == difference.interval[1]
    words, few = (table([one.to_dict()]) for one in (difference, replace(difference, passages=2)))
    assert "[-0.0484, +0.4484]" in words and "[" not in few


@pytest.mark.parametrize(
    "gaps, better",
    [([-0.2, -0.3], False),  # t with one degree of freedom would not decide it either
     ([-0.1, -0.2, -0.3], True),  # t = 3.46; 5 % with 2 degrees of freedom is 2.92
     ([-0.05, -0.2, -0.3], False),  # 2.52: two standard errors would decide it
     ([0.1, 0.2, 0.3], False), ([-0.2, -0.2, -0.2], False)],
)  # fmt: skip
def test_better_is_what_students_t_over_passages_says(gaps, better):
    assert evaluation.beats(difference_of(gaps)) is better


@pytest.mark.parametrize("t, df, p", [(6.313752, 1, 0.05), (2.919986, 2, 0.05), (2.353363, 3, 0.05), (1.833113, 9, 0.05),
                                      (4.3027, 2, 0.025), (1.697261, 30, 0.05), (-1.0, 2, 0.788675), (0.0, 5, 0.5)])  # fmt: skip
def test_students_t_is_the_published_one(t, df, p):
    assert one_sided_p(t, df) == pytest.approx(p, abs=1e-6)


def test_what_lies_before_the_first_length_changes_nothing():
    llama, passages = model(), tokens(3, 1025)
    methods = [evaluation.Method("standard"), evaluation.Method("sharp", rules=[isentrope.ScaleRule("scaled(1.5)")])]
    whole = evaluation.evaluate(llama, passages, methods, lengths=[0, 512, 768, 1024])
    results = evaluation.Results(None, {})
    differences = evaluation.evaluate(llama, passages, methods, lengths=[512, 768, 1024], results=results)
    assert len(results.get("sharp", 0, range(2, 4))) == 2
    message = "the blocks 0 to 2 of a passage; got 2 to 4 of standard"
    assert_refused(message, evaluation.evaluate, llama, passages, methods, lengths=[0, 512], results=results)
    for one, other in zip(differences, [difference for difference in whole if difference.first]):
        assert one.to_dict() == pytest.approx(other.to_dict(), abs=1e-6, nan_ok=True)


def test_a_run_is_taken_up_where_it_stopped_and_another_is_refused(tmp_path):
    llama, passages, file = model(), tokens(2, 513), tmp_path / "run.jsonl"
    methods = [evaluation.Method("standard"), evaluation.Method("sharp", rules=[isentrope.ScaleRule("scaled(1.5)")])]
    first = evaluation.evaluate(llama, passages, methods, lengths=[0, 512], results=evaluation.Results(file, {"a": 1}))
    with file.open("a") as half:
        half.write('{"method": "sharp", "passa')  # as left by a killed run
    calls = []
    again = evaluation.evaluate(
        llama, passages, methods, lengths=[0, 512], results=evaluation.Results(file, {"a": 1}),
        progress=lambda *step: calls.append(step),
    )  # fmt: skip
    assert again == first and calls == []
    assert first[1].difference != 0 and llama.config._attn_implementation == "sdpa"
    assert_refused("must be of this model, text and settings; a must be 2; got 1", evaluation.Results, file, {"a": 2})
    assert_refused("settings; b must be 1; got absent", evaluation.Results, file, {"a": 1, "b": 1})
    assert_refused("settings; a must be absent; got 1", evaluation.Results, file, {})


@pytest.mark.parametrize(
    "line, message",
    [("{", r"line 2 of .*run.jsonl must be JSON; got '{'"), ("[]", "line 2 of .* must have method, passage, first and nll; got"),
     ('{"method": "a", "passage": 0}', "method, passage, first and nll"), ('{"method": "a", "passage": 0, "nll": [NaN]}', "and nll"),
     ('{"method": 5, "passage": 0, "nll": [1.5]}', "and nll"), ('{"method": "a", "passage": 0, "nll": 1.5}', "and nll"),
     ('{"method": "a", "passage": 0, "first": 0, "nll": [1.5]}', "the blocks 0 to 2 of a passage; got 0 to 1 of a"),
     ('{"method": "a", "passage": 0, "first": -1, "nll": [1.5]}', "and nll"),
     ('{"method": "a", "passage": 0, "first": 1, "nll": [1.5]}', "the blocks 0 to 2 of a passage; got 1 to 2 of a")],
)  # fmt: skip
def test_a_damaged_file_of_results_is_refused_by_name(tmp_path, line, message):
    file = tmp_path / "run.jsonl"
    before = f'{{"a": 1}}\n{line}\n{{"method": "a", "passage": 1, "first": 0, "nll": [1.5, 2.5]}}\n'
    file.write_text(before)
    with pytest.raises(ValueError, match=message):
        results = evaluation.Results(file, {"a": 1})
        evaluation.evaluate(model(), tokens(2, 513), [evaluation.Method("a")], lengths=[0, 512], results=results)
    assert file.read_text() == before


def test_results_are_kept_in_a_file_alone(tmp_path):
    (tmp_path / "empty").touch()
    evaluation.Results(tmp_path / "empty", {"a": 1}).add("a", 0, [1.5], 3)
    assert evaluation.Results(tmp_path / "empty", {"a": 1}).get("a", 0, range(3, 4)) == [1.5]
    for path in ("/dev/zero", tmp_path):
        assert_refused("must be a file that can be read again", evaluation.Results, Path(path), {})
    (tmp_path / "text").write_text("no JSON")
    assert_refused("line 1 of .*text must be JSON; got 'no JSON'", evaluation.Results, tmp_path / "text", {})
    # A file of an earlier version begins with the first block.
    (tmp_path / "old").write_text('{"a": 1}\n{"method": "a", "passage": 0, "nll": [1.5, 2.5]}\n')
    assert evaluation.Results(tmp_path / "old", {"a": 1}).get("a", 0, range(1, 2)) == [2.5]


def test_a_truncated_file_of_results_is_called_so(tmp_path):
    file = tmp_path / "run.jsonl"
    evaluation.Results(file, {"a": 1}).add("a", 0, [1.5])
    whole = file.read_text()
    begin = whole.index("\n")
    for size in (1, begin // 2, begin):
        file.write_text(whole[:size])
        assert_refused("run.jsonl must begin with a whole line; got a truncated one", evaluation.Results, file, {"a": 1})
        assert file.read_text() == whole[:size]
    file.write_text(whole[:-5])  # the last line is written again
    assert evaluation.Results(file, {"a": 1}).get("a", 0, range(1)) is None


@pytest.mark.parametrize(
    "lengths, passages, message",
    [([0, 100], tokens(1, 600), "multiples of 256"), ([256], tokens(1, 600), "at least two"),
     ([0, 512], tokens(1, 300), "at least 513 tokens"), ([0, 256], [], "passages and methods")],
)  # fmt: skip
def test_what_does_not_fit_is_refused_before_the_model_runs(lengths, passages, message):
    assert_refused(message, evaluation.evaluate, None, passages, [evaluation.Method("a")], lengths=lengths)


class Words:
    """A tokenizer of bytes below 61, the size of the model's vocabulary."""

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": [byte % 61 for byte in text.encode()]}


def test_questions_lie_as_far_from_their_answers_as_they_say():
    passage = torch.full((2000,), 60)
    asked = retrieval.prompt(Words(), passage, [200, 800, 1500], seed=2)
    flat = asked.tokens.tolist()
    for distance, answer in zip(asked.distances, asked.answers):
        value = flat[answer.start + 1 : answer.stop + 1]
        text = "".join(map(chr, value))
        first = next(i for i in range(len(flat)) if flat[i : i + len(value)] == value)
        assert first < answer.start and abs((answer.start + 1 - first) - distance) < 160, (distance, text)
    assert_refused("longer than the distances", retrieval.prompt, Words(), passage, [1990])


def test_answers_have_the_losses_of_a_reading_of_all_tokens():
    llama, asked = model("isentrope"), retrieval.prompt(Words(), torch.full((600,), 60), [100, 400])
    everywhere = evaluation.losses(llama, asked.tokens)
    want = [everywhere[answer].mean().item() for answer in asked.answers]
    assert retrieval.retrieval(llama, asked) == pytest.approx(want, abs=1e-4)


@pytest.mark.parametrize(
    "answers, error, message",
    [([], ValueError, "there must be answers"), ([slice(5, 5)], ValueError, r"the 9 losses of 10 tokens; got slice\(5, 5, None\)"),
     ([slice(5, 10)], ValueError, "within the 9 losses"), ([slice(-2, 4)], ValueError, "within the 9 losses"),
     ([slice(4)], TypeError, "from one integer to another"), ([4], TypeError, "from one integer to another, no step; got 4")],
)  # fmt: skip
def test_answers_outside_of_the_tokens_are_refused(answers, error, message):
    assert_refused(message, retrieval.retrieval, None, retrieval.Prompt(torch.arange(10), [1], answers), error=error)
