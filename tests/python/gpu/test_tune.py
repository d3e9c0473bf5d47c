"""isentrope tune without a device: stand-ins compile, compute and time, so that choices and results are known."""

import json
from types import SimpleNamespace

import pytest
import torch
import triton
from stand_in_device import CHIP, StandIn
from triton.backends.compiler import GPUTarget

from isentrope.gpu import ahead, candidates, launch, plan, tile_table, tuning
from isentrope.gpu.tile_table import Key, Tiles
from src.gpu.compiling import TARGETS, launches

KEYS = candidates.keys(dims=(64,))
FORWARD, QUERY = KEYS[0], KEYS[2]
CPU = torch.ops.isentrope


def record(file):
    file.parent.mkdir(exist_ok=True)
    return tuning.Record(file, CHIP)


def test_the_fastest_right_tiles_are_kept_and_the_plan_takes_them(file):
    largest, next_one = Tiles(128, 128, 8, 2), Tiles(128, 64, 8, 3)
    result = tuning.tune([FORWARD, QUERY], StandIn(wrong=[largest]), record(file))
    (row, other) = result.rows()
    assert row["tiles"] == tile_table.as_json(next_one) and row["planned_ms"] == 10.0 and other["kernel"] == "query gradient"
    errors = {trial.tiles: trial.error for trial in result.trials.values() if trial.key == FORWARD}
    assert errors[largest].startswith("wrong") and errors[next_one] == ""
    assert plan.tiles("forward", CHIP, torch.bfloat16, 64, False, "lse") == next_one
    assert plan.tiles("forward", CHIP._replace(card="another"), torch.bfloat16, 64, False, "lse") != next_one


def test_what_does_not_compile_is_not_timed(file):
    device = StandIn(uncompiled=[Tiles(128, 128, 8, 2)])
    result = tuning.tune([FORWARD], device, record(file))
    assert (FORWARD, Tiles(128, 128, 8, 2)) not in device.measured
    assert result.trials[FORWARD, Tiles(128, 128, 8, 2)].error == "does not compile: too large"


def test_an_interrupted_run_goes_on_where_it_stopped(file):
    first, second = StandIn(stop_after=3), StandIn()
    with pytest.raises(KeyboardInterrupt):
        tuning.tune([FORWARD], first, record(file))
    result = tuning.tune([FORWARD], second, record(file))
    everything = candidates.candidates(FORWARD, CHIP)
    assert len(first.measured) == 3 and first.measured + second.measured == [(FORWARD, tiles) for tiles in everything]
    assert len(result.trials) == len(everything)
    third = StandIn()
    tuning.tune([FORWARD], third, record(file))
    assert third.measured == []
    tuning.tune([FORWARD], third, record(file), again=True)
    assert len(third.measured) == len(everything)


@pytest.mark.parametrize("changed", [{"triton": "0"}, {"kernels": "0"}, {"version": 0}, {"card": "another"}])
def test_a_record_of_other_kernels_is_measured_anew(file, changed):
    tuning.tune([FORWARD], StandIn(), record(file))
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))
    assert record(file).trials == {}
    file.write_text("{")
    assert record(file).trials == {}


def test_measuring_anew_keeps_the_tiles_of_other_keys(file):
    tuning.tune([FORWARD, QUERY], StandIn(), record(file))
    again = StandIn(stop_after=1)
    with pytest.raises(KeyboardInterrupt):
        tuning.tune([FORWARD], again, record(file), again=True)
    assert len(again.measured) == 1 and {row["kernel"] for row in record(file).rows()} == {"forward", "query gradient"}


def test_compiling_leaves_time_to_measure_what_is_compiled(file):
    """Ten seconds, of which each candidate takes one to compile and one to measure."""
    device, seconds = StandIn(), iter([10, 9, 8, 7, 6, 5, 4, 4, 3, 2, 1, 0])
    tuning.tune([FORWARD], device, record(file), left=lambda: next(seconds))
    assert len(device.measured) == 4
    device = StandIn()
    tuning.tune([FORWARD], device, record(file), left=lambda: 0)
    assert device.measured == []


def test_what_makes_the_device_unusable_is_left_out_by_the_next_run(file):
    """As an invalid address does: after it every call in that process fails."""
    (first, second, *others) = candidates.candidates(FORWARD, CHIP)
    with pytest.raises(tuning.DeviceLost, match="forward with .* made the device unusable; the next run goes on without it: lost"):
        tuning.tune([FORWARD], StandIn(fatal=[second]), record(file))
    assert {tiles: trial.error for (_, tiles), trial in record(file).trials.items()} == {first: "", second: "an invalid address"}
    device = StandIn()
    tuning.tune([FORWARD], device, record(file))
    assert device.measured == [(FORWARD, tiles) for tiles in others]


def test_an_outdated_table_is_replaced_without_a_warning(file, recwarn):
    tuning.tune([FORWARD], StandIn(), record(file))
    file.write_text(json.dumps(json.loads(file.read_text()) | {"triton": "0"}))
    with tile_table.trying(CHIP.kind, CHIP.card, FORWARD, Tiles(16, 16, 4, 1)):
        pass
    assert not recwarn.list


def test_the_time_left_is_told():
    reports, clock = [], iter([0.0, 10.0])
    show = tuning.with_time_left(lambda *x: reports.append(x), lambda: next(clock))
    show("compiled", 1, 4)
    show("compiled", 2, 4)
    assert reports == [("compiled", 1, 4), ("compiled, 20 s left", 2, 4)]


@pytest.mark.parametrize("key", [FORWARD, QUERY, Key("few rows", "bf16", 64, "all"), Key("masked key gradient", "f16", 32, "all")])
def test_results_are_compared_with_the_reference(key, monkeypatch):
    """The library's CPU kernels replace a device's, with and without one changed number."""

    def changed(*arguments):
        first, *others = CPU.attention_backward(*arguments) if "gradient" in key.kernel else CPU.attention(*arguments)
        first.view(-1)[-1] += 1
        return first, *others

    monkeypatch.setattr(plan, "chip_of", lambda _: CHIP)
    monkeypatch.setattr(tuning, "sizes_of", lambda *_, **__: tuning.Sizes(1, 4, 2, 20, 40))
    tiles = Tiles(16, 16, 4, 1)
    assert tuning.Device(torch.device("cpu"), CPU, lambda run: 3.0).measure(key, tiles) == 3.0
    name = "attention_backward" if "gradient" in key.kernel else "attention"
    wrong = SimpleNamespace(**{"attention": CPU.attention, name: changed})
    with pytest.raises(ValueError, match=r"wrong: result 0 is off by [0-9.]+ of its largest number"):
        tuning.Device(torch.device("cpu"), wrong, lambda run: 3.0).measure(key, tiles)


def unwritten(key, sizes):
    """Returns inputs of a call whose contents nothing reads."""
    queries = sizes.batch, sizes.heads, sizes.queries, key.columns
    keys = sizes.batch, sizes.kv_heads, sizes.keys, key.columns
    q, k, v, d_output = (torch.empty(shape, dtype=tuning._TYPES[key.dtype]) for shape in (queries, keys, keys, queries))
    masked = key.kernel.startswith("masked ")
    mask = torch.empty(sizes.queries, sizes.keys, dtype=torch.bool).expand(*queries[:3], sizes.keys) if masked else None
    return tuning.Inputs(q, k, v, d_output, mask)


NVIDIA = [chip for chip in TARGETS if chip.startswith("sm_")]


@pytest.mark.parametrize("chip", ["sm_80", *(pytest.param(chip, marks=pytest.mark.long) for chip in NVIDIA[1:])])
def test_the_timed_kernel_is_the_checked_one(chip):
    """Otherwise it would be neither compiled ahead nor checked. Forward passes before gradients are not timed."""
    target = TARGETS[chip]
    for key in candidates.keys() if chip == "sm_80" else candidates.all_keys():
        for tiles in candidates.candidates(key, target.chip):
            with launches(target) as found, tile_table.trying(target.chip.kind, target.chip.card, key, tiles):
                kernels = []
                for timed in (False, True):
                    call = tuning.prepared(key, unwritten(key, tuning.sizes_of(key, tiles, timed)), launch)
                    found.clear()
                    call()
                    kernels.append(found.copy())
            assert kernels[0] == kernels[1], (key, tiles)


def test_each_key_has_candidates_that_a_table_may_hold():
    for key in candidates.all_keys():
        for tiles in candidates.candidates(key, CHIP):
            tile_table._check(key, tiles)
    assert len(candidates.all_keys()) == len(set(candidates.all_keys())) > 200


@pytest.mark.long
def test_candidates_are_compiled_in_other_processes(monkeypatch, tmp_path):
    """For a card that is not present, into Triton's cache; also tiles that need more shared memory than any chip
    has."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(plan, "chip_of", lambda _: CHIP)
    monkeypatch.setattr(triton.runtime.driver, "_active", ahead._Driver(GPUTarget("cuda", 90, 32)))
    items = [(FORWARD, Tiles(64, 32, 4, 2)), (FORWARD, Tiles(64, 33, 4, 2))]
    errors = {tiles: error for _, tiles, error in tuning.Device(torch.device("cpu")).compile_all(items, 1)}
    assert errors[Tiles(64, 32, 4, 2)] == "" and errors[Tiles(64, 33, 4, 2)].startswith("does not compile")
    assert any(tmp_path.glob("*/forward_kernel.cubin"))
