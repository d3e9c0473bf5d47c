"""The base that keeps a head's entropy: theory for random scores, and the rows of a model's heads."""

import math

import pytest
import torch
from families import model_of
from refusals import assert_refused
from tiny_model import command, model, refused, save, tokens

from isentrope.models import bases as fitted
from isentrope.models.bases import TRIED, bases
from isentrope.rules import ScaleRule

LENGTHS = [64, 128, 256, 512, 1024]


def random_rows(heads, seed):
    generator = torch.Generator().manual_seed(seed)
    queries = {n: torch.randn(1, heads, fitted.ROWS, 64, generator=generator) for n in LENGTHS}
    keys = torch.randn(1, heads, LENGTHS[-1], 64, generator=generator)
    return fitted._Rows(queries, keys, {"scale": None, "soft_cap": 0.0, "sinks": None})


def test_random_keys_take_the_base_of_the_theory():
    # Base 4.5 keeps the entropy of 64 to 16,384 random keys of 64 dimensions: docs/theory.md.
    texts = [random_rows(8, seed) for seed in range(4)]
    slope = fitted._slopes(texts, [fitted._log_rule(c) for c in TRIED], LENGTHS).mean(1)
    base = math.exp(1 / fitted._crossing(slope, torch.tensor(TRIED)).item())
    assert base == pytest.approx(4.5, rel=0.1)
    entropies = fitted._entropy(texts, ScaleRule.entropy_invariant(base)).mean(1)
    assert (entropies - entropies[0]).abs().max() < 0.1 < fitted._entropy(texts, ScaleRule()).mean(1).diff().min()


def test_a_slope_crosses_zero_between_those_tried_or_nowhere():
    tried = torch.tensor(TRIED, dtype=torch.float64)
    slope = torch.stack([0.3 - tried, tried * 0 + 1, tried * 0 - 1], 1)
    crossings = fitted._crossing(slope, tried)
    assert crossings[0].item() == pytest.approx(0.3) and crossings[1:].isnan().all()


def test_a_head_without_scores_has_neither_and_others_are_kept_by_theirs():
    llama = model()
    llama.model.layers[1].self_attn.q_proj.weight.data[:8] = 0  # the first head
    fits = bases(llama, tokens(4, 512))
    assert fits.lengths == [64, 128, 256, 512] and fits.layers == [0, 1] and fits.texts == 2
    assert fits.base[1, 0].isnan() and fits.line[1, 0].isnan()
    mean_log_n = [sum(math.log(n) for n in range(end - 31, end + 1)) / 32 for end in fits.lengths]
    assert fits.entropy["standard"][:, 1, 0].tolist() == pytest.approx(mean_log_n, rel=1e-5, abs=1e-5)

    def change(rule, heads):
        return (fits.entropy[rule][-1] - fits.entropy[rule][0])[heads].abs().mean()

    for rule, number in {"a base per head": fits.base, "a line per head": fits.line}.items():
        known = ~number.isnan()
        assert known.sum() >= 5 and fits.entropy[rule][:, ~known].isnan().all()
        assert change(rule, known) < 0.5 * change("standard", known), "on texts that fitted nothing"
    assert llama.config._attn_implementation == "sdpa", "the model is left as it was"
    assert_refused("must have no rule that was set or saved; got ssmax: ", bases, model(isentrope_rule="ssmax"), tokens(2, 128))
    assert_refused("must have causal layers without a window", bases, model_of("mistral", "sdpa"), tokens(2, 128))


def test_a_line_leaves_the_middle_length_as_it_is():
    rule = fitted._line_rule([0.1, 0.3], 512)
    for head, a in enumerate((0.1, 0.3)):
        assert rule.lambda_(512, 64, head=head) * 8 == pytest.approx(1)
        assert rule.lambda_(4096, 64, head=head) * 8 == pytest.approx(1 + a * math.log(8))


def test_the_command_and_what_it_refuses(tmp_path):
    folder = save(model(), tmp_path, 3000)
    options = (folder / "tiny", "--text", folder / "text.txt", "--bases", "--max-length", 256)
    printed = command("inspect", *options)
    assert printed.returncode == 0 and "base of all heads: " in printed.stdout, printed.stderr
    refused("inspect", command("inspect", *options, "--output", tmp_path / "page.html"), "must not be given with --bases")
    refused("inspect", command("inspect", *options, "--texts", 1), "texts must be at least 2")
