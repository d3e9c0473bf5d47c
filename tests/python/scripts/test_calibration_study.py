"""Calibration across models: verdicts, the end of a training, and the study on models of two layers."""

import json
import math
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench/models"
sys.path.insert(0, str(BENCH))
verdicts = pytest.importorskip("verdicts")


def test_an_interval_is_students():
    assert verdicts.quantile(11) == pytest.approx(2.200985, abs=1e-6)
    verdict = verdicts.difference([1.0, 2.0, 3.0], [1.1, 2.2, 3.3])
    error = math.sqrt(0.01 / 3)
    assert verdict["mean"] == pytest.approx(-0.2) and verdict["high"] == pytest.approx(-0.2 + 4.302653 * error, abs=1e-6)
    assert verdict["p"] == pytest.approx(0.0742, abs=1e-4)  # t = 3.4641 with 2 degrees of freedom


@pytest.mark.parametrize("ours, called", [([0.001, -0.001, 0.0005, -0.0005], True), ([0.006, 0.004, 0.005, 0.0055], False),
                                          ([0.02, -0.02, 0.01, -0.01], False)])  # fmt: skip
def test_equivalence_is_a_mean_that_two_one_sided_tests_hold_within_the_margin(ours, called):
    verdict = verdicts.difference([2 + x for x in ours], [2.0] * len(ours), 0.005)
    assert (verdict["p"] < 0.05) is called
    low, high = verdict["low"], verdict["high"]
    assert not (called and (low < -0.01 or high > 0.01))


def test_what_tells_nothing_is_not_called():
    for ours in ([1.0, 1.0], [1.0, 1.0, 1.0]):
        verdict = verdicts.difference(ours, [2.0] * len(ours))
        assert verdict["p"] == 1 and verdict["low"] is None and verdict["mean"] == -1


def test_holm_stops_at_the_first_that_fails():
    tests = [{"p": p} for p in (0.04, 0.01, 0.03, 0.013)]
    verdicts.holm(tests)  # 0.01 <= 0.0125, 0.013 <= 0.0167, 0.03 > 0.025, so 0.04 fails too
    assert [test["called"] for test in tests] == [False, True, False, True]


def test_a_training_is_flat_where_its_last_readings_are_no_lower():
    from trained_models import is_flat

    settings = {"patience": 3, "flat": 0.01}
    assert not is_flat([4.0, 3.0, 2.0], settings)
    assert not is_flat([4.0, 3.0, 2.9, 2.95, 2.98], settings)
    assert is_flat([4.0, 3.0, 2.995, 2.992, 2.999], settings)


SENTENCE = "In the beginning {} said to {} that number {} was good, and the evening and the morning were day {}. "


def document(file, seed, sentences):
    words = ["God", "the man", "his wife", "a serpent", "the king", "Noah"]
    text = [SENTENCE.format(words[(i * seed) % 6], words[(i + seed) % 6], (i * i * seed) % 97, i % 7) for i in range(sentences)]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(text))


@pytest.mark.long
def test_the_whole_study_on_models_of_two_layers_goes_on_where_it_was_stopped(tmp_path, monkeypatch, capsys):
    import study

    documents = tmp_path / "documents"
    for part, count in (("training", 1), ("calibration", 2), ("test", 3)):
        for i in range(count):
            document(documents / part / f"kind-{i}.txt", 7 * len(part) + i, 1200)
    protocol = json.loads((BENCH / "protocol.json").read_text())
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    protocol["training"] |= {"vocabulary": 300, "batch": 4, "warm_up": 2, "every": 5, "patience": 2, "most_steps": 20}
    protocol["training"]["sizes"] = {"own-small": size}
    protocol["stretches"], protocol["grid"] = [2, 4], [0.1]
    protocol["tuning"] |= {"steps": 3, "models": ["own-small"]}
    (tmp_path / "protocol.json").write_text(json.dumps(protocol))
    output = tmp_path / "result.json"
    arguments = ["study.py", documents, "--model", "own-small", tmp_path / "model", "--work", tmp_path / "work",
                 "--protocol", tmp_path / "protocol.json", "--output", output]  # fmt: skip
    monkeypatch.setattr(sys, "argv", list(map(str, arguments)))
    assert study.main() == 0
    first = output.read_text()
    record = json.loads(first)
    model = record["models"]["own-small"]
    assert list(record["documents"]) == ["kind-0", "kind-1", "kind-2"] and set(model["stretches"]) == {"2", "4"}
    for stretch in model["stretches"].values():
        assert set(stretch["tests"]) == {"none", "yarn", "logn", "best"} and stretch["program"]["instruction_set"]
        assert all(isinstance(test["called"], bool) and math.isfinite(test["p"]) for test in stretch["tests"].values())
        assert len(stretch["answers"]["nll"]["entropy"]) == 3 and len(stretch["answers"]["nll"]["entropy"][0]) == 8
    assert isinstance(model["tuning"]["test"]["called"], bool)
    factors = json.loads((tmp_path / "work/readings/own-small/tuned-constant.json").read_text())
    assert any(x != 0 for layer in factors for x in layer), "every head's factor has a gradient"
    # Saved readings are reused, and give the same.
    readings = {file: file.stat().st_mtime_ns for file in (tmp_path / "work").rglob("*.json")}
    output.unlink()
    assert study.main() == 0
    assert output.read_text() == first
    assert readings == {file: file.stat().st_mtime_ns for file in (tmp_path / "work").rglob("*.json")}
    # Without the folder of readings, only what the record lacks is read, and gives the same.
    del record["models"]["own-small"]["stretches"]["4"], record["models"]["own-small"]["tuning"]
    output.write_text(json.dumps(record))
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    work.rename(elsewhere)
    assert study.main() == 0
    assert output.read_text() == first and not (work / "readings/own-small/gain-2.json").exists()
    # A record continues only with the same weights and documents.
    record["models"]["own-small"]["weights"] = "others"
    output.write_text(json.dumps(record))
    assert study.main() == 2 and "got " in capsys.readouterr().err
    (documents / "test/kind-0.txt").write_text("Another text. " * 5000)
    assert study.main() == 2 and "documents" in capsys.readouterr().err
