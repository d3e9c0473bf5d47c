"""Rules saved with a model of transformers, and restored when it is loaded."""

import json
import warnings

import pytest
import tiny_model
import torch
import transformers as hf

import isentrope.hf

TOKENS = torch.arange(40)[None] % 61


def model():
    return tiny_model.model("isentrope", sharper=1, num_hidden_layers=3)


def load(path, attention="isentrope"):
    return hf.AutoModelForCausalLM.from_pretrained(path, attn_implementation=attention).eval()


def key(path):
    return json.loads((path / "config.json").read_text()).get("isentrope_rule")


@pytest.mark.parametrize("rules, saved", [
    ([("logn(8)", None)], "logn(train_len=8)"),
    ([("logn(8)", [0, 2])], {"0": "logn(train_len=8)", "2": "logn(train_len=8)"}),
    ([("logn(8)", [0]), ("entropy_invariant(base=4)", [1])], {"0": "logn(train_len=8)", "1": "entropy_invariant(base=4)"}),
    ([("logn(8)", None), (None, None)], None),
])  # fmt: skip
def test_rules_come_back_with_their_model(tmp_path, rules, saved):
    llama = model()
    plain = llama(TOKENS).logits
    for rule, layers in rules:
        isentrope.hf.set_rule(llama, rule, layers)
        llama.save_pretrained(tmp_path)
    want = llama(TOKENS).logits
    assert torch.equal(want, plain) == (saved is None)
    assert key(tmp_path) == saved
    assert torch.equal(load(tmp_path)(TOKENS).logits, want)
    load(tmp_path).save_pretrained(tmp_path / "again")
    again, _ = hf.AutoModelForCausalLM.from_pretrained(
        tmp_path / "again", attn_implementation="isentrope", output_loading_info=True
    )
    assert torch.equal(again.eval()(TOKENS).logits, want)


def test_a_model_with_a_rule_under_another_attention_warns(tmp_path):
    llama = model()
    llama.save_pretrained(tmp_path / "plain")
    isentrope.hf.set_rule(llama, "logn(8)")
    llama.save_pretrained(tmp_path / "ruled")
    with pytest.warns(UserWarning, match=r"saved with the rule logn\(train_len=8\), which acts under .*; got 'sdpa'"):
        load(tmp_path / "ruled", "sdpa")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(tmp_path / "ruled")
        load(tmp_path / "plain", "sdpa")


@pytest.mark.parametrize("value, words", [(5, "must be a rule, or an object"), ({"first": "ssmax"}, "must be a rule, or"),
                                          ("nonsense", "nonsense"), ({"9": "ssmax"}, "layers must be"),
                                          ("ssmax(s=[1,2])", "number for each of the 4 heads, or one for all; got 2")])  # fmt: skip
def test_a_damaged_key_is_named(tmp_path, value, words):
    model().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"isentrope_rule": value}))
    with pytest.raises(ValueError, match=words):
        load(tmp_path)
