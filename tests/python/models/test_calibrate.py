"""The gain that restores the entropy of a stretched model: measurement, judgement, application, and the command."""

import json
import math

import pytest
import tiny_model
import torch
import transformers as hf
from refusals import assert_refused
from tiny_model import command, command_of_its_own, model, refused, tokens

import isentrope
import isentrope.hf
from isentrope.commands.calibrate import engine_settings, verdict
from isentrope.hf import rope
from isentrope.models import calibrate as calibration
from isentrope.models import evaluate as evaluation
from isentrope.models import heads


@pytest.mark.parametrize("per", ["model", "layer", "head"])
def test_the_gain_gives_a_stretched_model_its_entropy_back(per):
    llama = model()
    result = isentrope.calibrate(llama, tokens(3, 512), rope="linear:8", per=per, most_steps=4)
    assert (result.calibrated - result.before).mean().abs() < 0.2 * (result.stretched - result.before).mean().abs()
    assert abs(result.steps[-1]["difference"]) < result.steps[-1]["se"]
    assert result.kept and not result.nll and result.log_gains.shape == (2, 4)
    shared = {"model": 1, "layer": 2, "head": 8}[per]
    assert len(set(result.log_gains.flatten().tolist())) == shared
    assert llama.config.rope_parameters["rope_type"] == "default", "the model is left as it was"


def test_a_gain_planted_in_a_model_is_found():
    # Queries are scaled by e^-0.2 after the entropy was measured, so the restoring gain is e^0.2.
    llama, texts = model("isentrope"), tokens(3, 512)
    wanted = calibration.entropies(llama, texts).entropy
    for layer in llama.model.layers:
        layer.self_attn.q_proj.weight.data *= math.exp(-0.2)
    log_gains, steps, _, _ = calibration.solve(llama, texts, wanted, "model", 5)
    assert log_gains.mean().item() == pytest.approx(0.2, abs=1e-4)
    assert steps[2]["log_gain"] == pytest.approx(0.2, abs=0.002), "two Newton steps are enough"


def test_heads_are_told_apart_by_what_they_attend_to():
    assert heads.kinds(torch.tensor([[0.01, 0.5, 0.99]])) == [["local", "global", "sink"]]
    log_n = torch.tensor([256.0, 512, 1024]).log()
    entropy = torch.stack([torch.ones(3), log_n, 0.25 * log_n - 1], -1)[:, None]
    slope = heads.slopes(entropy, log_n[:, None, None].expand(3, 1, 3))
    torch.testing.assert_close(slope, torch.tensor([[0.0, 1, 0.25]]), rtol=1e-5, atol=1e-6)


def test_a_head_that_averages_over_all_keys_is_global_and_its_entropy_grows_as_ln_n():
    llama = model()
    for layer in llama.model.layers:
        layer.self_attn.q_proj.weight.data[:8] = 0  # the first head
    result = isentrope.calibrate(llama, tokens(1, 512), rope="yarn:4")
    torch.testing.assert_close(result.reach[:, 0], torch.full((2,), 0.5, dtype=torch.float64), rtol=3e-3, atol=0)
    torch.testing.assert_close(result.slope[:, 0], torch.ones(2, dtype=torch.float64), rtol=0.01, atol=0)
    assert [layer[0] for layer in result.to_dict()["heads"]["kind"]] == ["global", "global"]


def test_a_slope_that_one_block_cannot_tell_is_no_number_of_the_report(tmp_path):
    result = isentrope.calibrate(model(), tokens(1, 256), rope="yarn:4").to_dict()
    assert result["heads"]["slope"] == [[None] * 4] * 2
    json.loads(json.dumps(result, allow_nan=False))


@pytest.mark.parametrize(
    "one, by_head, kept",
    [(-0.1, -0.15, "head"), (-0.1, -0.1, "model"), (-0.1, 0.05, "model"), (0.1, -0.2, None), (0.0, 0.0, None),
     (None, None, None)],  # read by a model of random weights, for which no gain helps
)  # fmt: skip
def test_a_gain_is_kept_where_it_reads_better_beyond_the_trained_length(one, by_head, kept):
    # Invented losses of each method: within the trained length the opposite of beyond it.
    results, noise = evaluation.Results(None, {}), torch.Generator().manual_seed(1)
    changes = {"no gain": 0.0, "one gain": one, "a gain per head": by_head, "YaRN's own gain": 0.0}
    for method, change in changes.items():
        for passage in range(0 if one is None else 3):
            near, far = torch.randn(2, 4, generator=noise, dtype=torch.float64) * 1e-3
            results.add(method, passage, [*(4.0 - change + near[:2]).tolist(), *(4.0 + change + far).tolist()])
    result = isentrope.calibrate(
        model(), tokens(2, 512), rope="yarn:4", per="head", passages=tokens(3, 1537), lengths=[0, 512, 1024, 1536],
        results=results,
    )  # fmt: skip
    assert result.kept is (kept is not None) and {difference.method for difference in result.nll} == set(changes)
    assert kept or result.rules == [isentrope.ScaleRule()]
    measured = result.log_gains.flatten().tolist()
    assert len(set(measured)) == {"head": 8, "model": 1, None: 1}[kept]
    single = isentrope.calibrate(model(), tokens(2, 512), rope="yarn:4")
    assert (kept == "head") != (result.steps == single.steps and torch.equal(result.calibrated, single.calibrated))
    assert result.log_gain == (pytest.approx(sum(measured) / 8) if kept else 0)


LONG = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0, 3, 4, 8], "factor": 4.0}


@pytest.mark.parametrize("text", ["dynamic:4", json.dumps(LONG)])
def test_a_stretch_that_depends_on_the_length_is_measured_as_it_is_beyond(text):
    llama, stretch = model(), rope.parse(text)
    states = torch.zeros(1, 1, 32)
    short, long = torch.arange(500)[None], torch.arange(2048)[None]
    with rope.stretched(llama, stretch):
        beyond = llama.model.rotary_emb(states, long)[0][:, :500]
    with rope.stretched(llama, stretch, at_length=2048):
        torch.testing.assert_close(llama.model.rotary_emb(states, short)[0], beyond, rtol=0, atol=0)
    assert not torch.allclose(llama.model.rotary_emb(states, short)[0], beyond)
    result = isentrope.calibrate(llama, tokens(2, 512), rope=stretch)
    assert (result.stretched - result.before).abs().max() > 0.01


@pytest.mark.parametrize(
    "change, message",
    [({"passages": tokens(1, 513), "lengths": [0, 512]}, "must reach beyond the trained 512"),
     ({"per": "word"}, "per must be one of"), ({"rope": "none"}, "rope must be a stretch, such as yarn:4"),
     ({"texts": tokens(1, 600)}, "no longer than the 512"), ({"texts": tokens(1, 20)}, "at least 256 tokens")],
)  # fmt: skip
def test_calibrate_refuses_what_cannot_be_calibrated(change, message):
    arguments = {"texts": tokens(1, 300), "rope": "yarn:4"} | change
    assert_refused(message, isentrope.calibrate, model(), arguments.pop("texts"), **arguments)


def test_applied_a_calibration_acts_beyond_the_trained_length_alone():
    llama, (text,) = model("isentrope"), tokens(1, 800)
    result = isentrope.calibrate(llama, tokens(2, 512), rope="yarn:4", per="head")
    with torch.no_grad():
        short, long = llama(text[None, :500]).logits, llama(text[None]).logits
        isentrope.hf.apply(llama, result)
        assert_refused("must have no rule that was set or saved; got .*table", isentrope.calibrate, llama, tokens(2, 512), rope="yarn:4")
        torch.testing.assert_close(llama(text[None, :500]).logits, short, rtol=0, atol=0)
        changed = llama(text[None]).logits
        fresh = model("isentrope")
        isentrope.hf.apply(fresh, result.to_dict(), always=True)
        torch.testing.assert_close(fresh(text[None]).logits, changed, rtol=1e-4, atol=1e-4)
        assert not torch.allclose(changed, long) and not torch.allclose(fresh(text[None, :500]).logits, short)


def pointers(value, path=()):
    """Returns pointers to every value inside, containers included."""
    yield path
    for key, inside in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else []):
        yield from pointers(inside, (*path, key))


def damaged(document, path, replacement):
    *parents, last = path
    place = copied = json.loads(json.dumps(document))
    for key in parents:
        place = place[key]
    if replacement is None:
        del place[last]
    else:
        place[last] = replacement
    return copied


def test_what_is_no_calibration_is_refused_by_name_and_changes_nothing(tmp_path):
    llama, file = model("isentrope"), tmp_path / "rule.json"
    document = isentrope.calibrate(llama, tokens(1, 512), rope="yarn:4", per="head").to_dict()
    document = {key: document[key] for key in ("kind", "version", "rope", "trained_length", "rule")}
    parameters = dict(llama.config.rope_parameters)
    refused = 0
    for path in [path for path in pointers(document) if path]:
        for replacement in (None, [], {}, "text", -1, 0.5, True, ["text"], ["logn(512)"], ["scaled(1.1)"] * 3, {"rope_type": []}):
            file.write_text(json.dumps(damaged(document, path, replacement)))
            try:
                isentrope.hf.apply(llama, file)
            except ValueError as error:
                refused += 1
                assert str(file) in str(error) and "; got " in str(error), error
                assert llama.config.rope_parameters == parameters and not hasattr(llama.config, rope.SWITCHED)
            else:  # true's version, another text
                llama = model("isentrope")
    assert refused > 80
    for text in ("", "{", "[]", "5", '{"kind": "evaluation"}'):
        file.write_text(text)
        assert_refused(r"\[apply\] .*rule.json must be .*; got", isentrope.hf.apply, llama, file)
    assert_refused('cannot read ".*none.json": No such file', isentrope.hf.apply, llama, tmp_path / "none.json", error=OSError)


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("rope", ["yarn:4", "ntk:4"])
def test_what_was_applied_is_saved_with_the_model(tmp_path, always, rope):
    llama, (text,) = model("isentrope"), tokens(1, 800)
    result = isentrope.calibrate(llama, tokens(2, 512), rope=rope, per="layer")
    isentrope.hf.apply(llama, result, always=always)
    llama.save_pretrained(tmp_path)
    loaded = hf.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="isentrope").eval()
    with torch.no_grad():
        for length in (500, 800):
            torch.testing.assert_close(loaded(text[None, :length]).logits, llama(text[None, :length]).logits)


def test_one_gain_is_transformers_own_attention_factor():
    llama, (text,) = model("isentrope"), tokens(1, 600)
    result = isentrope.calibrate(llama, tokens(2, 512), rope="yarn:4").to_dict()
    settings = engine_settings(result | {"architecture": "llama"})
    isentrope.hf.apply(llama, result, always=True)
    parameters = json.loads(settings["transformers"].removeprefix("rope_parameters "))
    theirs = model(rope_parameters=parameters | {"rope_theta": 10000.0}).eval()
    with torch.no_grad():
        torch.testing.assert_close(theirs(text[None]).logits, llama(text[None]).logits, rtol=1e-3, atol=1e-3)
    factor = float(settings["llama.cpp"].rsplit(":", 1)[1])
    assert factor * (0.1 * math.log(4) + 1) == pytest.approx(parameters["attention_factor"], rel=1e-5)
    overrides = json.loads(settings["vLLM"].removeprefix("--hf-overrides ").strip("'"))
    assert overrides["rope_parameters"] == parameters | {"attn_factor": factor}
    assert "only YaRN with a single gain" in str(engine_settings(result | {"rule": ["standard"] * 2, "architecture": "llama"}))


@pytest.mark.parametrize(
    ("documents", "passages", "kept", "words"),
    [
        (1, 1, False, "undecided: the t test takes 3 passages or more, best of as many documents; got 1"),
        (2, 2, False, "undecided: the t test takes 3 passages or more, best of as many documents; got 2"),
        (1, 3, True, "kept: better by a t test over 3 passages of one document, which say nothing about other documents"),
        (4, 4, False, "not kept: no better by a t test over 4 documents"),
    ],
)
def test_a_verdict_names_its_units(documents, passages, kept, words):
    assert verdict({"documents": documents, "kept": kept, "nll": [{"passages": passages}]}) == words


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tiny_model.save(model(), tmp_path_factory.mktemp("model"), 8800)
    return folder / "tiny", folder / "text.txt"


def test_the_command_writes_a_rule_that_apply_takes(saved, tmp_path):
    (folder, text), rule, page = saved, tmp_path / "rule.json", tmp_path / "report.html"
    process = command(
        "calibrate", folder, "--text", text, "--rope", "yarn:4", "--length", 512, "--passages", 2, "--lengths", 0, 512, 1024,
        "--output", rule, "--json", "-", "--report", page, "--resume", tmp_path / "run.jsonl",
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    assert json.loads(rule.read_text()) == result and isinstance(result["kept"], bool)
    assert {"log_gain", "kept", "nll", "rule"} <= result.keys()
    assert {"method", "from", "to", "mean", "difference", "se"} <= result["nll"][0].keys()
    assert "<svg" in page.read_text() or "vega" in page.read_text()
    llama = hf.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="isentrope")
    isentrope.hf.apply(llama, rule)


@pytest.mark.parametrize("name", ["evaluate", "calibrate"])
def test_losses_of_another_model_or_text_are_not_taken_up(name, tmp_path):
    tiny_model.save(model(), tmp_path, 3000)
    folder, text = tmp_path / "tiny", tmp_path / "text.txt"
    arguments = [name, folder, "--text", text, *tiny_model.SHORTEST[name], "--resume", tmp_path / "run.jsonl"]
    assert command(*arguments).returncode == command(*arguments).returncode == 0
    if name == "evaluate":
        refused(name, command(*arguments, "--chunk", 64), "chunk must be 64; got 1024")
    text.write_text(text.read_text().replace("w0 w1 w4", "w0 w4 w1", 1))
    refused(name, command(*arguments), "tokens must be")
    for what, changed in {"weights": model(sharper=19), "config": model(rms_norm_eps=1e-3)}.items():
        changed.save_pretrained(folder)
        refused(name, command(*arguments), f"{what} must be")


@pytest.mark.parametrize("files, units, over", [(3, 3, "over 3 documents"), (2, 2, "undecided"), (1, 3, "over 3 passages of one document, which")])
def test_several_files_are_documents_and_give_a_passage_each(saved, tmp_path, files, units, over):
    (folder, text), paths = saved, [tmp_path / f"{i}.txt" for i in range(files)]
    for i, path in enumerate(paths):
        path.write_text(text.read_text()[i * 7 :])
    arguments = ["calibrate", folder, "--text", *paths, "--rope", "yarn:4", "--length", 256, "--passages", 3, "--lengths", 512, 1024]
    printed, document = command(*arguments), command(*arguments, "--json")
    assert printed.returncode == 0 and over in printed.stdout, printed.stderr
    document = json.loads(document.stdout)
    assert document["documents"] == files and document["texts"] == (files if files > 1 else 2)
    assert {row["passages"] for row in document["nll"]} == {units}
    assert document["text"] == ", ".join(path.name for path in paths)


@pytest.mark.long
def test_evaluate_as_a_command(saved, tmp_path):
    process = command_of_its_own(
        "evaluate", saved[0], "--text", saved[1], "--rope", "linear:2", "--rules", "standard", "scaled(1.1)",
        "--lengths", 0, 512, 1024, "--passages", 2, "--retrieval", "--json", "-",
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    document = json.loads(process.stdout)
    assert [row["method"] for row in document["nll"]] == ["standard"] * 2 + ["scaled(1.1)"] * 2
    assert len(document["retrieval"]) == 2 and len(document["retrieval"][0]["nll"]) == 8


@pytest.mark.parametrize(
    "arguments, message",
    [(["--rope", "spiral:2"], "the stretch must be"), (["--rope", "yarn:4", "--lengths", 0, 100], "multiples of 256"),
     (["--rope", "yarn:4", "--lengths", 0, 1 << 20], "the text must have at least 1048577 tokens; got 4"),
     (["--rope", '{"rope_type": "yarn", "factor": -2}'], "the factor of yarn must be a number of at least 1; got -2"),
     (["--rope", '{"rope_type": "llama3", "factor": 2}', "--lengths", 512, 1024], "transformers must take the parameters")],
)  # fmt: skip
def test_the_command_ends_in_one_line(saved, arguments, message):
    refused("calibrate", command("calibrate", saved[0], "--text", saved[1], *arguments), message)
