"""Kernels compiled for chips that need not be present: no spills, fitting resources, products by tensor cores."""

import re

import pytest
import torch
import variants
from variants import DROPOUT, MASKED, Variant, line

from bench.gpu.tables import CHIPS
from isentrope._core.call import call_of
from isentrope._core.library import BITS, LSE
from isentrope.gpu import launch, launch_write, plan, tile_table
from isentrope.gpu.launch_received import received, weights_at_paged
from src.gpu.compiling import TARGETS, binary, compiled, launches, ttgir
from src.gpu.lines import Line

HALVES = (torch.bfloat16, torch.float16)
# Every entry of the plan on the chip with the fewest spare registers, with all options that take registers; on the
# others the widest tiles of the most common type. long_compiled.py has the rest.
EVERY = [text for text in variants.every() if "stats=lse" not in text]
DROPPED = [line("bf16", 128, f"stats=lse {DROPOUT}{bwd}") for bwd in ("", " bwd=1")]
LSE_ONLY = [line(dtype, dim, f"stats=lse{bwd}") for dtype in ("bf16", "f16") for dim in (64, 128) for bwd in ("", " bwd=1")]
WIDEST = [line("bf16", 128), line("bf16", 128, "bwd=1")]
CHOSEN = [("sm_90", text) for text in EVERY + DROPPED + LSE_ONLY + variants.with_tiles_of_others()] + [
    (chip, text) for chip in TARGETS if chip != "sm_90" for text in WIDEST
]  # fmt: skip
# make test compiles one of each kind, make test-all the others.
OF_EACH_KIND = [("sm_90", text) for text in (*WIDEST, line("bf16", 128, few=True))]
# Limits for measured tiles, which may spill: bytes, and instructions that access them in an iteration. The most is the
# key gradient at 128 with gradients of statistics.
MEASURED_SPILLS, MEASURED_SPILLS_IN_LOOP = 344, 72
WITH_PRODUCTS = ("forward", "query_gradient", "key_gradient")


def check(chip, text):
    target, variant = TARGETS[chip], Variant(text)
    halves = variant.call.q.dtype in HALVES
    for one, kernel in variant.on(target):
        what = f"{chip} {text} {one.name} {kernel}"
        measured = is_measured(one, target.chip, variant)
        assert kernel.spilled <= MEASURED_SPILLS * measured, what
        assert kernel.shared <= target.shared, what
        assert all(loop.spills <= MEASURED_SPILLS_IN_LOOP * measured and loop.fences <= 8 for loop in kernel.loops), what
        if one.name in WITH_PRODUCTS:
            assert kernel.products or not halves, what
        if chip == "sm_90" and one.name in WITH_PRODUCTS and halves and variant.dim in (64, 128):
            # Decode steps have too few rows for a warp group, and so have tiles with masks, for lack of registers.
            without = variant.few or (variant.crowded and variant.dim == 128 and one.name == "key_gradient")
            assert ("HGMMA" in kernel.products) != without, what
            assert min(loop.narrowest for loop in kernel.loops) >= narrowest(variant, one.name), what


def is_measured(one, chip, variant):
    """Returns whether the kernel has tiles from the package's table."""
    constants, options = dict(one.constants), dict(one.options)
    if "SHAPE" not in constants or variant.call.q.dtype != torch.bfloat16:
        return False
    shape = constants["SHAPE"]
    tile = shape.ROWS, shape.KEYS, options["num_warps"], shape.STAGES
    return tile in {row[:4] for key, row in tile_table.shipped(chip.kind).tiles.items() if key.columns == variant.dim}


def narrowest(variant, name):
    """Returns the columns of the narrowest product of a loop. Masks leave registers for few queries at a time in the
    key gradient, and for few keys in the query gradient."""
    if variant.few or (name == "key_gradient" and variant.crowded):
        return 8
    if name == "query_gradient" and variant.crowded:
        return 16
    if name == "forward":
        return 32 if variant.crowded and variant.dim == 128 else 64
    return 32


@pytest.mark.parametrize("chip, text", [pytest.param(*x, marks=() if x in OF_EACH_KIND else pytest.mark.long) for x in CHOSEN])
def test_compiles(chip, text):
    check(chip, text)


OF_DERIVATIVES = [
    (chip, line(dtype, dim, words))
    for chip in CHIPS for dtype in ("bf16", "f16") for dim in (64, 128) for words in ("", "stats=lse", MASKED)
]  # fmt: skip


@pytest.mark.parametrize("chip, text", [pytest.param(*x, marks=() if x == OF_EACH_KIND[0] else pytest.mark.long) for x in OF_DERIVATIVES])
def test_derivatives_compile(chip, text):
    with launches(TARGETS[chip]) as recorded:
        Line(text).derivatives()
    kernels = [one for one in recorded if one.name.startswith(("tangent", "second_order")) and not one.name.endswith("_repair")]
    assert {one.name for one in kernels} == {"tangent", "second_order_rows", "second_order_query", "second_order_key"}
    for one in kernels:
        kernel = compiled(one, TARGETS[chip])
        assert kernel.spilled == 0 and kernel.shared <= TARGETS[chip].shared, f"{one.name}: {kernel}"


@pytest.mark.parametrize("words", ["sink=1", "sink=1 admitted=1"])
@pytest.mark.parametrize("chip", [x if x == "sm_90" else pytest.param(x, marks=pytest.mark.long) for x in TARGETS])
def test_weights_that_keys_receive_compile(chip, words):
    target = TARGETS[chip]
    with launches(target) as recorded:
        received(*Line(line("bf16", 128, words)).call, torch.empty(4, 32, 1024), None)
    (one,) = (one for one in recorded if one.name == "received")
    kernel = compiled(one, target)
    assert kernel.spilled == 0 and kernel.shared <= target.shared and kernel.products


def test_weights_of_chosen_keys_compile():
    of_cache = Line("dt=bf16 shape=4x32:8x8x256x128 mask=causal:bottom_right pages=16")
    chosen = torch.zeros(4, 32, 8, 5, dtype=torch.int64)
    with launches(TARGETS["sm_90"]) as recorded:
        weights_at_paged(*of_cache.call, torch.empty(4, 32, 8), chosen, None, of_cache.table, torch.full((4,), 256), None)
    (one,) = (one for one in recorded if one.name == "weights_at")
    assert compiled(one, TARGETS["sm_90"]).spilled == 0


@pytest.mark.long
def test_the_variants_choose_every_entry_of_the_plan(monkeypatch):
    chosen = set()
    tiles = plan.tiles

    def noted(kernel, chip, dtype, columns, masked=False, results="other"):
        chosen.add((dtype, kernel, masked, columns, results))
        return tiles(kernel, chip, dtype, columns, masked, results)

    monkeypatch.setattr(plan, "tiles", noted)
    with launches(TARGETS["sm_90"]):
        for text in variants.every():
            Line(text).run()
            Line(text).derivatives()
    for table, dtypes in ((plan._HALVES, (torch.bfloat16, torch.float16)), (plan._FLOATS, (torch.float32,))):
        for name, by_columns in table.items():
            masked, kernel = name.startswith("masked "), name.removeprefix("masked ")
            assert {(dtype, kernel, masked, columns) for dtype in dtypes for columns in by_columns} <= {x[:4] for x in chosen}
    for (_, kernel), by_columns in plan._BARE.items():
        assert {(dtype, kernel, False, columns, "lse") for dtype in HALVES for columns in by_columns} <= chosen


@pytest.mark.long
@pytest.mark.parametrize("text", WIDEST)
def test_repairs_fit(text):
    """Repair kernels, which rarely run, may spill."""
    for one, kernel in Variant(text).on(TARGETS["sm_90"], repairs=True):
        assert kernel.shared <= TARGETS["sm_90"].shared and "HGMMA" in kernel.products, one.name


@pytest.mark.long
@pytest.mark.parametrize("text", [text for text in LSE_ONLY if "dt=bf16" in text])
def test_numbers_that_lie_anywhere_compile_too(text):
    """Addresses and strides that are no multiples of 16: numbers are loaded one by one, which takes registers."""
    with launches(TARGETS["sm_90"]) as recorded:
        Line(text).run()
    for one in recorded:
        if one.name in WITH_PRODUCTS:
            kernel = compiled(one, TARGETS["sm_90"], aligned=False)
            assert kernel.shared <= TARGETS["sm_90"].shared and "HGMMA" in kernel.products, one.name


@pytest.mark.long
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("names, results", [
    (["entropy"], "moments"), (["variance"], "moments"), (["entropy", "variance"], "moments"), (["entropy", "collision"], "all"),
])  # fmt: skip
def test_query_gradients_of_entropy_and_variance_fit_their_tiles(dtype, names, results):
    """Tiles as large as those of calls without statistics, also on cards whose table has no such row."""
    wanted = LSE | sum(BITS[name] for name in names)
    q, statistics = torch.empty(1024, 128, dtype=dtype).expand(4, 8, 1024, 128), torch.empty(1).expand(1 + len(names), 4, 8, 1024)
    call = call_of(q, q, q, causal=True)
    with launches(TARGETS["sm_90"]) as recorded:
        launch.attention_backward(*call, wanted, q, statistics, q, statistics, False, False, False, False)
    (one,) = (one for one in recorded if one.name == "query_gradient")
    shape = dict(one.constants)["SHAPE"]
    has_own_tile = (shape.ROWS, shape.KEYS, shape.STAGES) == (128, 64, 3)
    assert has_own_tile == (results == "moments")
    assert not has_own_tile or compiled(one, TARGETS["sm_90"]).spilled == 0


def test_rows_of_lengths_alone_and_of_given_lambda():
    """Cases of rows_kernel that no other call has."""
    with launches(TARGETS["sm_90"]) as recorded:
        launch.row_lengths(*Line("dt=bf16 shape=4x8x64x64x64").call)
        launch.attention(*Line("dt=bf16 shape=4x8x64x64x64 lambda=1").call, 0)
    kernels = [compiled(one, TARGETS["sm_90"]) for one in recorded if one.name == "rows"]
    assert len(kernels) == 2 and all(kernel.spilled == 0 for kernel in kernels)


def test_packed_queries_and_writes_of_a_cache_compile():
    """Short sequences whose keys are in one share each, and one whose keys are split."""
    with launches(TARGETS["sm_90"]) as recorded:
        for sequences, pages in ((512, 4), (1, 512)):
            q = torch.empty(1, 64, dtype=torch.bfloat16).expand(1, 32, 600, 64)
            cache = torch.empty(16, 64, dtype=torch.bfloat16).expand(1024, 8, 16, 64)
            table, used = torch.zeros(sequences, pages, dtype=torch.int32), torch.zeros(sequences, dtype=torch.int64)
            starts = torch.zeros(sequences + 1, dtype=torch.int64)
            q = q if sequences > 1 else q[:, :, :1]
            launch.decode(*call_of(q, cache, cache, causal=True), table, used, starts, LSE | BITS["entropy"])
        launch_write.write_cache(cache[:1], cache[:1], cache, cache, used.expand(16))
    kernels = [(one.name, compiled(one, TARGETS["sm_90"])) for one in recorded]
    assert {name.removesuffix("_repair") for name, _ in kernels} == {"rows", "forward", "merge", "write"}
    assert not [(name, kernel.spilled) for name, kernel in kernels if kernel.spilled > MEASURED_SPILLS]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_bulk_copies_load_keys_and_values_of_tiles_with_descriptors(dtype, monkeypatch):
    """Except in the key gradient, which loads them once, and in the launch before it, which finds the largest keys."""
    tiles, target = plan.tiles, TARGETS["sm_90"]
    monkeypatch.setattr(plan, "tiles", lambda *x, **y: tiles(*x, **y)._replace(descriptors=True))
    q, statistics = torch.empty(1, 2, 256, 64, dtype=dtype), torch.empty(1, 1, 2, 256)
    call = call_of(q, q, q, causal=True)
    with launches(target) as found:
        launch.attention(*call, LSE)
        launch.attention(*call_of(q[:, :, :1], q, q), LSE)
        launch.attention_backward(*call, LSE, q, statistics, q, None, False, False, False, False)
    copied = [one.name.removesuffix("_repair") for one in found if "async_tma_copy_global_to_local" in ttgir(one, target)]
    assert copied == ["forward"] * 3 + ["query_gradient"] * 2


def without_statistics(source):
    """Returns the source of a kernel without the code of statistics other than lse and support."""
    lines, inside = [], None
    for code in source.splitlines():
        depth = len(code) - len(code.lstrip())
        if inside is not None and (not code.strip() or depth > inside):
            continue
        inside = depth if re.match(r"\s*if WANTED\.(?!LSE|SUPPORT)", code) else None
        if inside is None:
            lines.append(code)
    return "\n".join(lines) + "\n"


@pytest.mark.long
def test_a_call_that_asks_for_no_statistics_pays_nothing():
    """It compiles to the same instructions as a kernel without statistics in its source."""
    from isentrope.gpu.kernels import block, forward, results, shares, sums

    def compiled_forward(statistics):
        variant = Variant(line("bf16", 64, "" if statistics else "stats=lse"))
        return next(kernel for one, kernel in variant.on(TARGETS["sm_90"]) if one.name == "forward")

    full, bare = compiled_forward(True), compiled_forward(False)
    functions = [getattr(sums, name) for name in ("rebase", "add_moments")]
    functions += [results.write_rows, shares.store_share, block.load_block, forward.are_no_numbers]
    changed = {function: without_statistics(function.src) for function in functions}
    assert all(len(source) < len(function.src) for function, source in changed.items())
    with variants.changed_sources(changed):
        none = compiled_forward(False)
    assert bare == none and bare.instructions < full.instructions


def test_sums_of_tiles_that_hide_nothing_start_where_a_contracted_difference_is_harmless():
    """Logits count from -2^16, and rows beyond +-2^16 start anew: a multiply-add leaves the rounding error of larger ones."""
    target = TARGETS["sm_90"]
    with launches(target) as recorded:
        Line(line("bf16", 64, "stats=lse")).run()
    (forward,) = (one for one in recorded if one.name == "forward")
    code = binary(forward, target).asm["ptx"]
    assert re.search(r"mov\.b32\s+%r\d+, 0fC7800000;", code)
    assert re.search(r"setp\.geu\.f32\s+%p\d+, %r\d+, 0f47800000;", code)
