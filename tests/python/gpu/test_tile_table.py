"""Tables of measured tiles: the plan's choice, invalid tables, and correctness of the package's."""

import json

import pytest
import torch
import triton

from isentrope.commands import doctor
from isentrope.gpu import plan, tile_table
from isentrope.gpu.problems import Problem
from isentrope.gpu.tile_table import Key, Tiles

CARD = "NVIDIA Card (of tests)"
CHIP = plan.Chip("sm90", 132, CARD)
FORWARD = Key("forward", "bf16", 64, "lse")
PACKAGE = tile_table.shipped("sm90").tiles


@pytest.fixture
def user(file):
    """Writes a table of the card into the empty cache folder."""

    def write(text):
        of_card = tile_table.user_file(CARD)
        of_card.parent.mkdir(exist_ok=True)
        of_card.write_text(text)
        tile_table.forget()
        return of_card

    return write


def table(rows, **changed):
    head = {"version": tile_table.VERSION, "card": CARD, "triton": triton.__version__, "kernels": tile_table.kernels_hash()}
    listed = [key._asdict() | {"tiles": tile_table.as_json(tiles)} for key, tiles in rows.items()]
    return json.dumps(head | changed | {"rows": listed})


def planned(key, chip=CHIP):
    return plan.tiles(key.kernel, chip, torch.bfloat16, key.columns, False, key.results)


def test_the_users_table_comes_before_the_packages_and_that_before_the_plans(user):
    own = Tiles(16, 32, 2, 1, 96, True, occupancy=None)
    user(table({FORWARD: own}))
    assert planned(FORWARD) == own
    others = [key for key in PACKAGE if key != FORWARD]
    assert len(others) > 10 and all(planned(key) == PACKAGE[key] for key in others)
    assert planned(FORWARD, CHIP._replace(card="another")) == PACKAGE[FORWARD]
    assert planned(FORWARD._replace(results="other")) == plan._OWN["sm90", "forward"][64]
    assert planned(FORWARD, plan.Chip("sm80", 108, "A100")) == plan._HALVES["forward"][64]


def test_query_gradients_of_entropy_have_tiles_of_their_own_where_some_fit(user):
    moments = Key("query gradient", "bf16", 128, "moments")
    assert planned(moments) == plan._MOMENTS["sm90", "query gradient"][128] != planned(moments._replace(results="all"))
    # If they have no tiles of their own, they use those of all statistics, measured or planned.
    narrow = moments._replace(columns=64)
    assert planned(narrow) == PACKAGE[narrow._replace(results="all")]
    a100 = plan.Chip("sm80", 108, "A100")
    assert planned(moments, a100) == plan._OWN["sm80", "query gradient"][128]
    own = Tiles(64, 32, 4, 2)
    user(table({moments: own}))
    assert planned(moments) == own


@pytest.mark.parametrize("text, reason", [
    ("{", "cannot be read"),
    (table({FORWARD._replace(results="moments"): Tiles(16, 32, 4, 1)}), "cannot be read"),
    (table({FORWARD: Tiles(17, 32, 4, 1)}), "cannot be read"),
    (table({FORWARD: Tiles(16, 32, 4, 1, occupancy=0)}), "cannot be read"),
    (table({FORWARD._replace(kernel="backward"): Tiles(16, 32, 4, 1)}), "cannot be read"),
    (table({}, version=1), "cannot be read"),
    (table({FORWARD: Tiles(16, 32, 4, 1)}, triton="1.0"), "measured with Triton 1.0"),
    (table({FORWARD: Tiles(16, 32, 4, 1)}, kernels="others"), "measured with other kernels"),
])  # fmt: skip
def test_a_table_that_cannot_be_used_is_ignored_and_named(user, text, reason):
    file = user(text)
    with pytest.warns(UserWarning, match="isentrope tune writes it anew"):
        assert planned(FORWARD) == PACKAGE[FORWARD]
    source = tile_table.table_of("sm90", CARD).source
    assert reason in source and str(file) in source


def test_a_table_of_another_version_is_named(user):
    user(table({}, version=1))
    with pytest.warns(UserWarning, match="version 2 is required; got 1: it is ignored; isentrope tune writes it anew"):
        planned(FORWARD)


def test_doctor_names_the_table(user, monkeypatch):
    def line(chip):
        monkeypatch.setattr(plan, "chip_of", lambda _: chip)
        return doctor._on_a_gpu("cuda", 0)

    assert "measured on one NVIDIA H200" in line(CHIP)
    assert "not measured on this card; isentrope tune measures them" in line(plan.Chip("sm80", 108, "A100"))
    file = user(table({}))
    assert line(CHIP).endswith(f"isentrope tune measures this card ({file} has none that gave right results)")
    user(table({FORWARD: Tiles(16, 32, 2, 1)}))
    assert f"measured on this card: {file}" in line(CHIP)


@pytest.mark.parametrize(
    "key",
    [pytest.param(key, marks=() if i == 0 else pytest.mark.long) for i, key in enumerate(PACKAGE)],
    ids=lambda key: " ".join(map(str, key)),
)
def test_measured_tiles_compute_right_numbers(key):
    """In the interpreter, with more rows and keys than a tile has."""
    queries = 2 if key.kernel == "few rows" else 70
    gradient = " bwd=1" if "gradient" in key.kernel else ""
    problem = Problem.of_line(f"dt=bf16 shape=1x2:1x{queries}x150x{key.columns} mask=causal:bottom_right{gradient}")
    # Problems request all statistics, so the tiles are used for those, whatever results they were measured with.
    asked = key._replace(results="all")
    with tile_table.trying("interpreter", "", asked, PACKAGE[key]):
        chip = plan.chip_of(torch.device("cpu"))
        assert plan.tiles(key.kernel, chip, torch.bfloat16, key.columns, False, "all") == PACKAGE[key]
        problem.run()
    assert problem.verdict()["outcome"] == "PASSED"


@pytest.mark.parametrize("blocks", [1, 8, 64, 200, 512, 791])
@pytest.mark.parametrize("keys", [1024, 8192, 32768, 131072])
def test_shares_fill_whole_waves(blocks, keys):
    chip, occupancy, tile = plan.Chip("sm90", 132), 6, 32
    shares = plan.shares_of(chip, blocks, keys, tile, occupancy)
    assert 1 <= shares <= 128 and (shares == 1 or keys // shares >= 4 * tile), "a share has four tiles at least"
    wave = occupancy * chip.units
    waves = -(-blocks * shares // wave)
    assert waves <= 2
    if 64 <= blocks <= 512 and keys > 8192:
        assert blocks * shares >= 0.85 * waves * wave


def test_a_full_device_splits_nothing():
    chip = plan.Chip("sm90", 132)
    assert plan.shares_of(chip, 264, 32768, 128, occupancy=2) == 1
    assert plan.shares_of(chip, 0, 32768, 128, occupancy=2) == 1
    assert 0.9 * 128 <= plan.shares_of(chip, 1, 1 << 20, 128, occupancy=2) <= 128
