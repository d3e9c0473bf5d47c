"""Recipes: a page is short, shows a file of examples/ unchanged, and the file prints what the page says."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from programs import ROOT, loaded

PAGES = sorted(ROOT.glob("docs/recipes/*.md"))
CORPUS = ROOT / "data/king-james.txt"
GENERATED = ROOT / "docs/results/generate-longer.txt"  # what the recipe printed


def run(example, *arguments, program=(sys.executable,)):
    command = [*program, ROOT / "examples" / example, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_pages_show_examples_and_are_short():
    for page in PAGES:
        text = page.read_text()
        assert "<!-- begin examples/" in text and len(text.splitlines()) <= 60, page.name


def losses(lines):
    return [float(loss) for line in lines for loss in re.findall(r"\b\d\.\d\d\b", line)]


def test_the_page_on_longer_texts_has_the_numbers_of_a_run():
    beyond, far = losses(GENERATED.read_text().splitlines()[:1]), losses(GENERATED.read_text().splitlines()[1:2])
    page = (ROOT / "docs/recipes/generate-longer.md").read_text().splitlines()[-1]
    assert losses([page]) == far + beyond


@pytest.mark.long
def test_a_training_is_logged_to_tensorboard():
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run("train_any_module.py")
    newest = max((ROOT / "results/run").iterdir(), key=os.path.getmtime)
    curves = EventAccumulator(str(newest)).Reload()
    assert len(curves.Tags()["scalars"]) == 2 * 4 * 3
    assert [point.step for point in curves.Scalars("attention/1/head0/entropy")] == [0, 50, 100]


@pytest.mark.long
def test_every_head_is_logged_offline_and_drawn(tmp_path):
    pytest.importorskip("wandb")
    log = ROOT / run("log_every_head.py")[-1]
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    heads = {(row["module"], row["head"]) for row in rows}
    assert len(heads) == 8 and [row["step"] for row in rows if (row["layer"], row["head"]) == (0, 0)] == list(range(0, 101, 10))
    (written,) = ROOT.glob(f"results/wandb/offline-run-*-{log.stem}/run-{log.stem}.wandb")
    logged = written.read_bytes()
    assert all(f"attention/{module}/head{head}/max_logit".encode() in logged for module, head in heads)
    assert b"attention/max_logit" in logged
    report = tmp_path / "report.html"
    subprocess.run(["isentrope", "report", log, "--output", report], check=True)
    assert report.read_text().count("<figure>") == 5


@pytest.mark.long
def test_what_bounds_logits_is_seen():
    summaries = [ast.literal_eval(line.split(" ", 2)[2]) for line in run("watch_for_collapse.py")]
    largest = [summary["attention/max_logit"] for summary in summaries]
    assert largest[:2] == pytest.approx([1.8, 11.9], rel=0.2)  # as the page says
    assert max(largest[2:]) <= 10 < largest[1]


@pytest.mark.long
def test_masks_are_those_of_flex_attention():
    assert run("own_mask.py") == ["mask_mod is attn_mask: True", "keys of the last row: 100", "score_mod is bias: True"]


def test_tensors_may_lie_on_a_gpu(capsys):
    loaded("examples/on_a_gpu.py")
    assert capsys.readouterr().out == "output, statistics and gradients lie where q does: True\n"


@pytest.mark.long
def test_two_processes_compute_what_one_does():
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    # Each process may write in the middle of the other's line.
    output = "".join(run("over_two_processes.py", program=torchrun))
    lines = re.findall(r"rank \d: 500 rows of 1000, as in one process: \w{4}", output)
    assert sorted(lines) == [f"rank {rank}: 500 rows of 1000, as in one process: True" for rank in (0, 1)]


@pytest.mark.long
def test_logits_explode_without_qk_clip_and_not_with_it():
    lines = run("qk_clip.py")
    largest = [int(re.search(r"largest logit (\d+)", line)[1]) for line in lines]
    free, clipped = largest[:4], largest[4:]
    assert free[0] == clipped[0] == 1 and free == sorted(free) and free[3] > 300  # the page: 1, 160, 456, 776
    assert max(clipped) < 60
    assert losses(lines)[7] < losses(lines)[3]


@pytest.mark.long
def test_the_experiment_of_a_note_runs(tmp_path):
    options = ("--steps", "20", "--output", tmp_path / "run", "--quiet")
    run("notes_experiment", "first", CORPUS, *options, program=())
    assert (tmp_path / "run/report.html").exists()


@pytest.mark.long
def test_a_calibrated_model_generates_beyond_its_length(tmp_path):
    if "ISENTROPE_SMOLLM2" not in os.environ:
        pytest.skip("ISENTROPE_SMOLLM2 names no model")
    calibration = tmp_path / "rule.json"
    calibrate = [sys.executable, "-m", "isentrope.commands.calibrate", os.environ["ISENTROPE_SMOLLM2"], "--text", CORPUS]
    subprocess.run([*calibrate, "--rope", "yarn:4", "--passages", "0", "--output", calibration], check=True)
    lines = run("generate_longer.py", os.environ["ISENTROPE_SMOLLM2"], CORPUS, calibration)
    assert losses(lines[:2]) == pytest.approx(losses(GENERATED.read_text().splitlines()[:2]), abs=0.05)
    assert len(lines[2]) > 20


@pytest.fixture
def demo():
    return loaded("scripts/demo")


def test_the_demo_counts_the_training_while_other_parts_run(demo, tmp_path, monkeypatch):
    monkeypatch.setattr(demo.threading.Thread, "start", lambda self: None)
    progress, done = demo.Progress(), []
    progress.trained = lambda: demo.trained(tmp_path)
    with progress.measuring("statistics"):
        done.append(progress.done())
    for rule, log in [("a", "step 1 of 500, loss 5.3\na: step 250 of 500, loss 2.1\n"), ("b", "")]:
        (tmp_path / f"cell/{rule}/models").mkdir(parents=True)
        (tmp_path / f"cell/{rule}/log.txt").write_text(log)
    done.append(progress.done())
    (tmp_path / "cell/b/log.txt").write_text("b: step 500 of 500, loss 1.5, 9.0 steps/s, 0:00 left\n")
    done.append(progress.done())
    (tmp_path / "cell/b/models/b-seed1.json").write_text("{}")
    done.append(progress.done())
    with progress.measuring("training"):
        pass
    assert done == pytest.approx([0, 6 + 75 * 0.225, 6 + 75 * 0.675, 6 + 75 * 0.725]) and progress.done() == 6 + 75


def test_the_demo_counts_the_forward_passes_of_its_model(demo):
    layer, shares = torch.nn.Identity(), []
    with demo.counting_passes(SimpleNamespace(base_model=SimpleNamespace(layers=[layer])), 4, shares.append):
        for _ in range(3):
            layer(0)
    layer(0)
    assert shares == [0.25, 0.5, 0.75]


def test_the_plan_of_the_demo_has_as_many_trainings_as_it_counts(demo):
    plan = json.loads((ROOT / "tools/lab/demo.json").read_text())
    assert [step["seeds"] for step in plan["order"]] == [1] and plan["rules"]["pair"].count(",") + 1 == demo.TRAININGS


def test_make_demo_shows_no_progress_bars_of_libraries():
    done = subprocess.run(["make", "-n", "measure-demo"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "TQDM_DISABLE=1" in done.stdout


@pytest.mark.long
def test_the_demo_measures_its_four_parts(demo, tmp_path, monkeypatch, capsys):
    from tiny_model import model, save

    plan = json.loads((ROOT / "tools/lab/demo.json").read_text())
    plan["common"] += " --evaluation-tokens 1024"
    plan["cells"]["rope-bert-500"] = "--layers 1 --width 16 --heads 2 --steps 2"
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    small = {"COST_LENGTHS": (64, 128), "HEAD_TOKENS": 256, "GAIN_TOKENS": 256, "LONGEST": 768, "BIN": 256}
    for name, value in (small | {"PLAN": tmp_path / "plan.json"}).items():
        monkeypatch.setattr(demo, name, value)
    for display in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(display, raising=False)
    monkeypatch.chdir(ROOT)
    save(model(), tmp_path, 3000)
    demo.main([str(tmp_path / "tiny"), "--text", str(tmp_path / "text.txt"), "--output", str(tmp_path / "out"),
               "--program", shutil.which("isentrope")])  # fmt: skip
    *sentences, page = capsys.readouterr().out.splitlines()
    assert len(sentences) == 5 and page == f"The page: {tmp_path / 'out' / 'report.html'}"
    page, record = ((tmp_path / "out" / name).read_text() for name in ("report.html", "demo.json"))
    assert page.count("<figure>") == 7 and "undecided (fewer than 3 seeds)" in page and "Weight on the first key" in page
    record = json.loads(record)
    assert [each["rule"]["rule"] for each in record["heads"]] == ["standard", demo.RULE]
    assert record["heads"][0]["mean"]["entropy"] != record["heads"][1]["mean"]["entropy"]
    assert record["cost"]["difference"] < 1e-4 and len(record["training"]["cells"]["rope-bert-500"]["records"]) == 2
    assert [row["to"] for row in record["stretched"]["nll"]] == 2 * [256, 512, 768]


def test_the_readme_is_one_screen_after_another():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 110
    tables = "\n".join(lines).split("\n|---")[1:]
    assert all(len(table.split("\n\n")[0].splitlines()) - 1 <= 8 for table in tables)


@pytest.mark.long
def test_a_consistency_model_has_the_losses_of_torchs_math():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    import isentrope

    recipe = loaded("examples/mean_flow.py")
    ours = list(recipe.train(isentrope.attention))
    with sdpa_kernel(SDPBackend.MATH):
        theirs = list(recipe.train(torch.nn.functional.scaled_dot_product_attention))
    assert len(ours) == 100 and ours == pytest.approx(theirs, rel=0, abs=1e-5)
    page = (ROOT / "docs/recipes/mean-flow.md").read_text()
    assert losses_with_three_digits(page) == pytest.approx([ours[0], ours[-1]], abs=2e-2)


def losses_with_three_digits(page):
    return [float(x) for x in re.findall(r"\d\.\d{3}", re.search("`loss (.*)`", page)[1])]
