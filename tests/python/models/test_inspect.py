"""isentrope inspect: the numbers of a known model, the command, and its report."""

import json
import math
import os
import re
from pathlib import Path

import pytest
import tiny_model
import torch
import transformers as hf
from dispatched import Dispatched
from families import model_of
from refusals import assert_refused

import isentrope
from isentrope.commands.inspect import _table, readings
from isentrope.commands.reading import stretches, tokenised
from isentrope.models.inspect import _suggestion, over_heads

def model(silent_layer=None):
    llama = tiny_model.model(sharper=1, max_position_embeddings=64).train()
    if silent_layer is not None:
        # Scores of 0: every row averages over all of its keys.
        torch.nn.init.zeros_(llama.model.layers[silent_layer].self_attn.q_proj.weight)
        llama.model.layers[1 - silent_layer].self_attn.q_proj.weight.data *= 100
    return llama


def texts(count=3, length=40):
    return [torch.randint(0, 61, (length,)) for _ in range(count)]


def test_a_head_without_scores_blurs_and_its_numbers_are_known():
    llama = model(silent_layer=1)
    result = isentrope.inspect(llama, texts(), max_length=33)
    assert result.blurred() == [(1, head) for head in range(4)] and result.collapsed() == []
    assert result.edges == [1, 2, 3, 5, 9, 17, 33, 65] and result.n[-2:] == result.positions[-2:] == [24.5, 33]
    bins = [(1, 2), (2, 3), (3, 5), (5, 9), (9, 17), (17, 33), (33, 34)]
    exact = [sum(math.log(n) for n in range(a, b)) / (b - a) for a, b in bins]
    torch.testing.assert_close(result.mean["entropy"][1], torch.tensor([exact] * 4, dtype=torch.float64), rtol=1e-5, atol=1e-6)
    assert result.mean["effective_keys"][1, 0, :3].tolist() == pytest.approx([sum(range(a, b)) / (b - a) for a, b in bins[:3]], rel=1e-7)
    assert (result.spread["entropy"][1] < 1e-6).all() and (result.spread["entropy"][0, :, 2:] > 0).all()
    assert result.texts == 3 and result.tokens == 99
    assert llama.config._attn_implementation == "sdpa" and llama.training, "the model is left as it was"


@pytest.mark.parametrize("kind", ["llama", "albert"])
def test_numbers_equal_those_of_eager_weights(kind):
    """Also where two modules serve as several layers in turn, as in ALBERT."""
    albert, (text,) = hf.AlbertModel(hf.AlbertConfig(**tiny_model.CONFIG, embedding_size=16, inner_group_num=2)), texts(1)
    llama = (model() if kind == "llama" else albert).eval()
    result = isentrope.inspect(llama, [text])
    edges = result.edges if kind == "llama" else [1, 41]  # every row of ALBERT sees all keys
    llama.set_attn_implementation("eager")
    with torch.no_grad():
        weights = llama(text[None], output_attentions=True).attentions
    for layer, p in enumerate(weights):
        entropy = torch.special.entr(p[0].double()).sum(-1)
        want = torch.stack([entropy[:, a - 1 : b - 1].mean(1) for a, b in zip(edges, edges[1:])], 1)
        torch.testing.assert_close(result.mean["entropy"][layer], want, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(result.sink[layer], p[0, :, :, 0].double().mean(-1), rtol=1e-5, atol=1e-5)
    assert len(result.sink) == len(weights) == (2 if kind == "llama" else 4)


def test_inspecting_a_text_is_one_forward_pass():
    llama, text = tiny_model.model(), torch.randint(1, 61, (128,))
    with torch.no_grad(), Dispatched() as pass_of_the_model:  # with sdpa
        llama.base_model(text[None], use_cache=False)
    with Dispatched() as inspected:
        isentrope.inspect(llama, [text])
    assert inspected.names.count("attention") == 2  # one a layer
    products = {"mm", "addmm", "bmm", "baddbmm"} & set(pass_of_the_model.names)
    assert products and all(inspected.names.count(name) == pass_of_the_model.names.count(name) for name in products)


def test_the_suggested_rule_is_the_one_that_was_left_out():
    """A model without a rule, whose scores need ln n for constant entropy: that rule is suggested."""
    n = torch.tensor([8, 16, 32, 64, 128], dtype=torch.float64)
    factor = n.log() / math.log(128)
    variance = torch.full((2, 1, 5), 0.7, dtype=torch.float64)
    entropy = 2 + (variance * factor.log())  # by the law dH / d ln lambda = -variance, integrated
    entropy[1] = torch.tensor([3.0, 3, 3, torch.nan, torch.nan])  # a layer with a window has no part in it
    rule = _suggestion(over_heads({"n": n.expand(2, 1, 5), "entropy": entropy, "variance": variance}))
    for length in n:
        assert rule.lambda_(int(length), 64) == pytest.approx(math.log(length) / math.log(128) / 8, rel=2e-3)
    ruled = tiny_model.model("isentrope")
    for layers, current in (([0], "None"), (None, "standard * logn(train_len=8)")):  # it multiplies the rule that is set
        isentrope.hf.set_rule(ruled, "logn(8)", layers)
        assert str(isentrope.inspect(ruled, texts()).rule.rule) == current


def test_the_longest_rows_of_a_head_are_those_its_window_leaves():
    config = hf.Gemma2Config(**tiny_model.CONFIG, sliding_window=6, layer_types=["sliding_attention", "full_attention"])
    llama = hf.AutoModelForCausalLM.from_config(config)
    for layer in llama.model.layers:
        torch.nn.init.zeros_(layer.self_attn.q_proj.weight)
    result = isentrope.inspect(llama, texts())
    assert result.mean["entropy"][0, :, -1].isnan().all(), "no row of the first layer sees as many keys"
    assert result.blurred() == [(layer, head) for layer in range(2) for head in range(4)]
    llama.model.layers[0].self_attn.q_proj.weight.data.normal_().mul_(1000)
    llama.model.layers[0].self_attn.k_proj.weight.data.mul_(1000)
    result = isentrope.inspect(llama, texts())
    assert all(0.9 < float(row.split()[2]) <= 1 for row in _table(result).splitlines()[2:]), "full heads"
    assert {layer for layer, _ in result.blurred()} == {1} and {layer for layer, _ in result.collapsed()} <= {0}


def test_errors_name_the_argument():
    inspect, llama = isentrope.inspect, model()
    assert_refused("texts must contain one of at least 2 tokens", inspect, llama, [torch.tensor([3])])
    assert_refused("tokenizer must be given", inspect, llama, ["word"])
    for text in ("words", torch.arange(9)):
        assert_refused("texts must be a list of texts", inspect, llama, text, error=TypeError)
    for token in (-1, 61, 1 << 62):
        assert_refused(f"tokens of the model's vocabulary, 0 to 60; got .*{token}", inspect, llama, [torch.tensor([3, token])])


def test_a_model_that_cannot_be_inspected_is_left_as_it_was():
    llama = hf.RoFormerModel(hf.RoFormerConfig(vocab_size=61, hidden_size=32, num_hidden_layers=1, num_attention_heads=4))
    before = llama.config._attn_implementation
    assert_refused("must use attn_implementation|must call the attention", isentrope.inspect, llama, texts())
    assert llama.config._attn_implementation == before and llama.training
    parts = model_of("paligemma", {"": "sdpa", "vision_config": "eager"})
    (tower := parts.model.vision_tower).train()
    with isentrope.hf.reading(parts):
        assert (tower.training, tower.config._attn_implementation) == (False, "isentrope")
    assert (parts.training, tower.training, tower.config._attn_implementation) == (False, True, "eager")


def test_stretches_are_evenly_spread_and_an_encoder_reads_them_at_several_lengths():
    assert [x.tolist() for x in stretches(torch.arange(10), 3, 4)] == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    assert [x.tolist() for x in stretches(torch.arange(3), 3, 4)] == [[0, 1, 2]]
    assert isentrope.inspect(model_of("bert", "sdpa"), [torch.arange(9), torch.arange(20)]).n == [9, 20]
    texts = stretches(torch.arange(100), 2, 64)
    assert [[len(x) for x in readings(texts, 64, causal)] for causal in (0, 1)] == [[64, 64, 32, 32, 16, 16], [64, 64]]


class Characters:
    """A tokenizer of characters, whose texts may begin with a token."""

    def __init__(self, *begin):
        self.begin, self.bos_token_id, self.asked = begin, (*begin, None)[0], 0

    def __call__(self, text, **_):
        self.asked += len(text)
        return {"input_ids": torch.tensor([[*self.begin, *map(ord, text)]])}


def test_long_texts_are_tokenised_where_they_are_read():
    text, tokenizer = "".join(chr(0x100 + i // 1000) for i in range(50_000)), Characters()
    stretches = tokenised(tokenizer, text, 3, 10)
    assert [x[0].item() - 0x100 for x in stretches] == [0, 24, 49] and {len(x) for x in stretches} == {10}
    assert tokenizer.asked == 480
    assert [x[0].item() for x in tokenised(tokenizer, "abcdefghij", 2, 4)] == [ord("a"), ord("g")]


def test_every_stretch_begins_as_the_tokenizer_has_texts_begin():
    assert [x.tolist() for x in tokenised(Characters(2), "abcdefghij", 2, 4)] == [[2, *b"abc"], [2, *b"hij"]]
    assert {x[0].item() for x in tokenised(Characters(2), "abcdefghij" * 1000, 2, 4)} == {2}


@pytest.fixture
def folder(tmp_path):
    return tiny_model.save(model(), tmp_path, words=300)


def test_the_command_writes_table_json_and_report(folder):
    (folder / "report.json").write_text("of somebody else")
    result = tiny_model.command("inspect", folder / "tiny", "--text", folder / "text.txt", "--texts", 2,
                                "--json", folder / "out.json", "--output", folder / "report.html")  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "of ln n" in result.stdout and "current rule: standard" in result.stdout
    assert "text: 2 of 2" in result.stderr
    document = json.loads((folder / "out.json").read_text())
    assert document["kind"] == "inspection" and document["tokens"] == 128 and document["model"] == "tiny"
    page = Path(folder / "report.html").read_text()
    assert "Attention of tiny" in page and "Every head at its longest rows" in page
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page), "the page loads nothing"
    assert (folder / "report.json").read_text() == "of somebody else"


@pytest.mark.long
def test_without_transformers_the_command_says_what_to_install(folder):
    (folder / "transformers.py").write_text("raise ModuleNotFoundError('none', name='transformers')")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), isentrope.__path__[0] + "/.."])}
    result = tiny_model.command_of_its_own("inspect", folder / "tiny", "--text", folder / "text.txt", env=environment)
    assert result.returncode == 2 and result.stderr == (
        "isentrope inspect: isentrope.hf needs transformers 5.18 or later: pip install transformers\n"
    )
