"""The note's experiment: its text, masks and pairs, and the whole experiment on a model of two layers."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from programs import ROOT

sys.path.insert(0, str(ROOT / "tools/lab/note"))
corpus, evaluate, objective, train = (pytest.importorskip(name) for name in ("corpus", "evaluate", "objective", "train"))

VOCABULARY = objective.Vocabulary(size=50, mask=3, first_ordinary=4)
E512 = "entropy_invariant(base=512)"


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Returns tokens that each exceed the last by one, so that next and masked tokens are easy to predict."""
    folder, parts = tmp_path_factory.mktemp("text"), {}
    for name, count in (("train", 4096), ("test", 2500)):
        tokens = (np.arange(count) % 46 + 4).astype(np.uint16)
        np.save(folder / f"{name}.npy", tokens)
        parts[name] = {"tokens": count, "characters": 4 * count, "sha256": hashlib.sha256(tokens.tobytes()).hexdigest()}
    about = {"vocabulary": VOCABULARY.size, "mask": VOCABULARY.mask, "first_ordinary": VOCABULARY.first_ordinary, "parts": parts}
    (folder / "corpus.json").write_text(json.dumps(about))
    return folder


def run(text, output, *more):
    return train.main(["--corpus", str(text), "--tiny", "--output", str(output), *more])


def records(output):
    return {file.stem: json.loads(file.read_text()) for file in (output / "models").glob("*.json")}


def test_masks_are_berts():
    ids = torch.randint(4, 50, (2000, 64))
    batch = objective.masked(ids, VOCABULARY, torch.Generator().manual_seed(1))
    assert (batch.labels == ids.gather(1, batch.positions)).all()
    there = batch.ids.gather(1, batch.positions)
    assert (there == VOCABULARY.mask).float().mean() == pytest.approx(0.8, abs=0.02)
    assert (there == batch.labels).float().mean() == pytest.approx(0.1 + 0.1 / 46, abs=0.02)
    hidden = torch.zeros(2000, 64, dtype=torch.bool).scatter(1, batch.positions, True)
    assert (hidden.sum(1) == objective.MASKED).all() and (batch.ids == ids)[~hidden].all()


@pytest.mark.parametrize("name", objective.OBJECTIVES)
def test_every_length_reads_the_same_tokens_with_the_same_predictions(name):
    ids = torch.randint(4, 50, (32, 64))
    batch = objective.OBJECTIVES[name][0](ids, VOCABULARY, torch.Generator().manual_seed(1))
    places = batch.positions + 64 * torch.arange(32)[:, None]
    for length in evaluate.LENGTHS:
        longer = batch.joined(length)
        assert (longer.ids.flatten() == batch.ids.flatten()).all() and (longer.labels.flatten() == batch.labels.flatten()).all()
        begin = length * torch.arange(len(longer.ids))[:, None]
        assert ((longer.positions + begin).flatten() == places.flatten()).all()


def test_a_causal_model_predicts_the_token_behind_each_position():
    ids = torch.arange(128).view(2, 64)
    batch = objective.causal(ids, VOCABULARY, torch.Generator())
    assert (ids.gather(1, batch.positions) + 1 == batch.labels).all() and batch.labels.shape == (2, 63)


def test_a_frozen_rule_stays_at_the_trained_length():
    from isentrope import ScaleRule

    frozen = ScaleRule(evaluate.frozen(E512))
    assert frozen.lambda_(1024, 64) == frozen.lambda_(64, 64) == ScaleRule(E512).lambda_(64, 64) < ScaleRule(E512).lambda_(1024, 64)
    assert evaluate.frozen("unit(constant(scale=30))") == "unit(constant(scale=30,n_max=64))"


def test_the_models_of_a_seed_are_paired_and_finished_ones_are_kept(text, tmp_path, capsys):
    assert run(text, tmp_path, "--tokens", "2048", "--seeds", "1", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    models = records(tmp_path)
    assert sorted(models) == ["entropy_invariant-base=512-seed1", "standard-seed1"]
    standard, grown = models["standard-seed1"], models["entropy_invariant-base=512-seed1"]
    assert printed == [standard, grown]
    assert standard["configuration"]["steps"] == 2 and standard["configuration"]["corpus"] == grown["configuration"]["corpus"]
    assert [row["kind"] for row in standard["rows"]] == ["trained", "near", "rescaled"]
    assert [row["kind"] for row in grown["rows"]] == ["trained", "near", "frozen"]
    trained, near, rescaled = standard["rows"]
    assert trained["cross_entropy"][0] == near["cross_entropy"][0] == pytest.approx(rescaled["cross_entropy"][0])
    assert trained["entropy"][0] == pytest.approx(sum(trained["entropy_by_layer"][0]) / 2)
    assert sum(trained["blocks"]["right"][4]) == pytest.approx(trained["accuracy"][4] / 100 * trained["predictions"][4])
    # Only the third model is trained; existing ones are unchanged.
    before = (tmp_path / "models/standard-seed1.json").stat().st_mtime_ns
    assert run(text, tmp_path, "--tokens", "2048", "--rules", "standard,log_length") == 0
    assert len(records(tmp_path)) == 3 and (tmp_path / "models/standard-seed1.json").stat().st_mtime_ns == before


def test_a_finished_model_of_another_command_or_text_is_refused(text, tmp_path, capsys):
    assert run(text, tmp_path, "--tokens", "2048", "--rules", "standard") == 0
    other = shutil.copytree(text, tmp_path / "other")
    (other / "corpus.json").write_text((text / "corpus.json").read_text().replace('"sha256": "', '"sha256": "0'))
    for folder, complaint, *more in (
        (text, "steps 2; this command trains steps 4", "--tokens", "4096"),
        (text, "objective mlm", "--tokens", "2048", "--objective", "causal"),
        (other, "is a model of corpus", "--tokens", "2048"),
    ):
        assert run(folder, tmp_path, "--rules", "standard", *more) == 2
        assert complaint in capsys.readouterr().err


def test_seed_0_is_a_seed(text, tmp_path):
    assert run(text, tmp_path, "--tokens", "64", "--rules", "standard", "--seed", "0") == 0
    assert list(records(tmp_path)) == ["standard-seed0"]


def test_a_training_learns_and_repeats(text):
    train_text = train.Corpus(text, torch.device("cpu"), 2048)
    losses, batches = [], []
    for rule, seed, steps in (("standard", 1, 30), ("standard", 1, 30), (E512, 1, 1), ("standard", 2, 1)):
        training = train.Training(train.TINY, 16, rule, "causal", seed, train_text)
        for step in range(steps):
            training.advance(step, 30)
            losses.append(float(training.loss))
            if step == 0:
                batches.append(training.batch.ids.clone())
    assert losses[29] == losses[59] and losses[29] < losses[0] - 0.5
    assert (batches[0] == batches[2]).all() and not (batches[0] == batches[3]).all()


def test_seconds_end_a_training(text, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "TIMED", 5)
    assert run(text, tmp_path, "--seconds", "0.01", "--rules", "standard") == 0
    assert records(tmp_path)["standard-seed1"]["configuration"]["steps"] == 5


@pytest.mark.parametrize("more, complaint", [(["--tokens", "64", "--rules", "warm"], "a rule must be"), ([], "--tokens")])
def test_what_is_wrong_is_named(text, tmp_path, capsys, more, complaint):
    with pytest.raises(SystemExit) as ended:
        run(text, tmp_path, *more)
    assert ended.value.code == 2 and complaint in capsys.readouterr().err


def test_a_missing_text_is_named(tmp_path, capsys):
    assert run(tmp_path / "none", tmp_path, "--tokens", "64") == 2 and "corpus.json" in capsys.readouterr().err


def test_the_experiment_measures_what_it_declares():
    plan = json.loads((ROOT / "tools/lab/experiments/notes-size.json").read_text())
    declared = plan["experiment"]
    rescaled = train.split_rules(plan["rescaled"]["base 64"])
    measured = {(name, kind) for rule in train.split_rules(plan["rules"]["pair"])
                for kind, name, _ in evaluate.scales(rule, rescaled, "mlm")}  # fmt: skip
    for family in (declared["primary"], declared["secondary"]):
        assert set(family["lengths"]) < set(evaluate.LENGTHS)
        for contrast in family["contrasts"]:
            against = {**contrast, **contrast["against"]}
            assert {(side["rule"], side["kind"]) for side in (contrast, against)} <= measured
    for path, digest in plan["texts"].items():
        assert hashlib.sha256((ROOT / path).read_bytes()).hexdigest() == digest


def start_study(text, folder, *options, tokens=1024, seeds=1):
    """scripts/study on a plan of two rules, in a process group of its own."""
    plan = {
        "trainer": str(ROOT / "tools/lab/note/train.py"), "common": f"--corpus {text} --tiny --tokens {tokens}",
        "cells": {"masked": "--objective mlm"}, "rules": {"pair": "standard,log_length"}, "rescaled": {"none": "none"},
        "order": [{"cell": "masked", "rules": "pair", "rescaled": "none", "seeds": seeds}],
    }  # fmt: skip
    (folder / "plan.json").write_text(json.dumps(plan))
    command = [sys.executable, ROOT / "scripts/study", folder / "plan.json", "--output", folder / "out", "--records",
               folder / "records.json", *options]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def study_records(folder):
    return json.loads((folder / "records.json").read_text())["cells"]["masked"]["records"]


def wait_until(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.1)


@pytest.mark.long
def test_the_study_runs_a_trainer_of_its_own(text, tmp_path):
    study = start_study(text, tmp_path, "--jobs", "1")
    out, _ = study.communicate()
    assert study.returncode == 0 and "2 of 2 trainings" in out and "minutes left" in out
    assert [record["rule"] for record in study_records(tmp_path)] == ["log_length", "standard"]
    assert "step 1 of 1" in (tmp_path / "out/masked/standard-seed1/log.txt").read_text()


@pytest.mark.long
def test_ctrl_c_keeps_finished_models_and_the_study_goes_on(text, tmp_path):
    study = start_study(text, tmp_path, "--jobs", "1", tokens=200_000)
    second = tmp_path / "out/masked/log_length-seed1/log.txt"
    wait_until(lambda: second.exists() and study_records(tmp_path))
    os.killpg(study.pid, signal.SIGINT)
    study.communicate()
    (finished,) = study_records(tmp_path)
    assert study.returncode == 130 and finished["rule"] == "standard"
    model = tmp_path / "out/masked/standard-seed1/models/standard-seed1.json"
    written = model.stat().st_mtime_ns
    study = start_study(text, tmp_path, "--jobs", "1", tokens=200_000)
    out, _ = study.communicate()
    assert study.returncode == 0 and "2 of 2 trainings" in out
    assert finished in study_records(tmp_path) and model.stat().st_mtime_ns == written


# Trains on the CPU while it holds one of two devices, and tells when it held which.
HOLDER = """
import contextlib, json, sys, time
import torch
import train

@contextlib.contextmanager
def held(_):
    with train.first_free(sys.argv[1].split(",")) as i:
        begin = time.monotonic()
        yield torch.device("cpu")
        print(json.dumps([i, begin, time.monotonic()]), flush=True)

train.free_device = held
sys.exit(train.main(sys.argv[2:]))
"""


@pytest.mark.long
def test_a_device_has_one_training_at_a_time(text, tmp_path):
    names = f"{tmp_path.name}-{os.getpid()}-a,{tmp_path.name}-{os.getpid()}-b"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "tools/lab/note"), os.environ.get("PYTHONPATH", "")]),
                                "TMPDIR": str(tmp_path)}  # fmt: skip
    processes = [
        subprocess.Popen([sys.executable, "-c", HOLDER, names, "--corpus", text, "--tiny", "--tokens", "60000", "--seed", str(seed),
                          "--rules", "standard", "--output", tmp_path / "out"],
                         env=environment, stdout=subprocess.PIPE, text=True) for seed in (1, 2, 3)
    ]  # fmt: skip
    intervals = sorted(json.loads(process.communicate()[0]) for process in processes)
    assert all(process.returncode == 0 for process in processes) and len(records(tmp_path / "out")) == 3
    assert {index for index, _, _ in intervals} == {0, 1}
    for (first, _, end), (second, begin, _) in zip(intervals, intervals[1:]):
        assert first != second or end <= begin


def test_prose_is_kept_and_tables_are_not():
    line = "The quick brown fox jumps over the lazy dog and sleeps."
    assert corpus.prose(f"  {line}\n| 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 |\nshort\n") == line


def test_documents_are_english_files(tmp_path):
    line = "The quick brown fox jumps over the lazy dog and sleeps."
    for name in ("en/a.html", "de/a.html", "a.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"<head>x</head><p>{line} &amp; so on</p>")
    assert corpus.documents_of(tmp_path / "en/a.html") == [f"{line} & so on"]
    assert corpus.documents_of(tmp_path / "de/a.html") == corpus.documents_of(tmp_path / "a.png") == []
