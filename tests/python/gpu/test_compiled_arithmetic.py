"""Arithmetic of compiled kernels where it differs from the interpreter's: docs/contributors/device-arithmetic.md."""

import ptx
import pytest
from variants import DOCUMENTS, DROPOUT, MASKED, Variant, line

from src.gpu.compiling import TARGETS, binary, launches

# The fast cases are calls that test_compiled compiles.
CALLS = [("sm_90", line("bf16", 128)), ("sm_90", line("bf16", 128, few=True)), ("sm_90", line("bf16", 128, "bwd=1"))]
OTHERS = [("sm_90", line(dtype, 64, "bwd=1")) for dtype in ("f16", "f32")]
OTHERS += [("sm_90", line("bf16", 64, mask=DOCUMENTS)), ("sm_90", line("bf16", 128, "pages=16", few=True))]
for dtype in ("bf16", "f16", "f32"):
    OTHERS += [("sm_80", line(dtype, 64, words)) for words in (f"{MASKED} {DROPOUT}", f"{MASKED} {DROPOUT} bwd=1", "bwd=1")]
    OTHERS.append(("sm_80", line(dtype, 64, few=True)))
FORWARD, GRADIENTS = ("forward", "forward_repair"), ("query_gradient", "key_gradient")
# Conversions of numbers: rounded to nearest even, beyond the range to infinity; those to a wider type are exact.
CONVERSIONS = {
    *(f"cvt.rn.{narrow}.f32" for narrow in ("bf16", "bf16x2", "f16", "f16x2")), "cvt.f32.f16", "cvt.f32.bf16", "cvt.rn.f32.f64", "cvt.f64.f32",
    "cvt.rn.f32.s32", "cvt.rn.f32.u32", "cvt.rna.tf32.f32",
}  # fmt: skip
# Approximate functions. libdevice computes log2 by additions and products. The quotient of div.approx is 0 for divisors
# beyond 2^126, and that of div.full is not.
FUNCTIONS = {"ex2.approx.ftz.f32", "ex2.approx.f32", "div.full.f32", "div.approx.f32", "sqrt.approx.ftz.f32"}
LEAST = "0fC3480000"  # -200


def kernels(chip, text):
    """Returns the PTX of the call's kernels by name; the long cases also have repair launches."""
    target = TARGETS[chip]
    with launches(target) as recorded:
        Variant(text).run()
    if (chip, text) in CALLS:
        # Triton's cache has them.
        return {one.name: ptx.read(binary(one, target).asm["ptx"]) for one in recorded if not one.name.endswith("_repair")}
    return {one.name: ptx.of(one, target) for one in recorded}


@pytest.fixture(scope="module", params=[*CALLS, *(pytest.param(x, marks=pytest.mark.long) for x in OTHERS)], ids=" ".join)
def call(request):
    return request.param


@pytest.fixture(scope="module")
def compiled(call):
    return kernels(*call)


def test_conversions_round_to_nearest_and_overflow_to_infinity(compiled):
    for name, code in compiled.items():
        conversions = {one for one in code.names if one.startswith("cvt.") and any(x in one for x in ("f16", "bf16", "f32", "f64"))}
        assert conversions <= CONVERSIONS, name
        integers = {one for one in code.names if one.startswith(("cvt.rzi", "cvt.rni", "cvt.sat"))}
        assert not integers, f"{name}: no float becomes an integer"


def test_functions_are_those_whose_errors_are_known(compiled):
    for name, code in compiled.items():
        assert {one for one in code.names if ".approx" in one or ".full" in one or one.startswith(("div.rn", "sqrt"))} <= FUNCTIONS, name
        # Additions of libdevice's log2.
        flushing = {"ex2.approx.ftz.f32", "sqrt.approx.ftz.f32", *["fma.rn.ftz.f32"] * (name in (*FORWARD, "merge"))}
        assert {one for one in code.names if ".ftz" in one} <= flushing, name
        for one in code.instructions:
            if one.name == "div.approx.f32":
                divisor = code.writers[one.operands[2]]
                assert divisor.name == "mov.b32" and divisor.operands[1].startswith("0f"), f"{name}: the divisor is a constant"


def test_products_of_float32_are_three_and_count_no_nan_of_infinities(call, compiled):
    """Inf minus Inf, what is left of an infinite number, is NaN and counts 0. Others multiply exactly."""
    variant = Variant(call[1])
    for name, code in compiled.items():
        if any("mma" in one for one in code.names):
            split = {"cvt.rna.tf32.f32", "setp.num.f32"} & code.names
            assert len(split) == 2 * ("dt=f32" in variant.text), name


def test_nan_passes_a_limit_where_it_must(compiled):
    """min.f32 of NaN and a number is the number. Weights of gradients are limited, and NaN must stay."""
    for name, code in compiled.items():
        assert "min.f32" not in code.names and "max.NaN.f32" not in code.names, name
        assert ("min.NaN.f32" in code.names) == name.startswith(GRADIENTS), name


def of_weights(code):
    """Returns t of each weight 2^t, before float16's lift is added to it."""
    for one in code.instructions:
        if one.name.startswith("ex2."):
            t = code.source(one)
            while t is not None and t.name == "add.f32" and t.operands[-1].startswith("0f"):
                t = code.source(t)
            if t is not None:
                yield t


def test_logits_that_are_multiplied_have_a_limit(call, compiled):
    """Below -126 a weight is 0, and 0 times a logit of -inf is NaN."""
    variant = Variant(call[1])
    for name, code in compiled.items():
        limited = {one.operands[1] for one in code.instructions if one.name == "max.f32" and one.operands[-1] == LEAST}
        if name in FORWARD and variant.statistics:
            differences = [t for t in of_weights(code) if t.name == "sub.f32"]
            masked = {t.operands[0] for t in differences if is_selection(code.source(t))}
            # With dropout the moments have weights of their own, in another layout, by way of shared memory.
            by_memory = {t.operands[0] for t in differences} - masked
            assert masked and (limited & by_memory if variant.fields.get("dropout") else masked <= limited), name
        if name in GRADIENTS and variant.statistics:
            hidden = {t.operands[0] for t in of_weights(code) if is_selection(t)}
            assert hidden and (limited if variant.fields.get("dropout") else hidden <= limited), name


def is_selection(instruction):
    return instruction is not None and instruction.name == "selp.f32"


def has_values(code):
    """Returns whether each load and copy that may be skipped leaves another value."""
    written = set()
    for one in code.instructions:
        if one.predicated and one.name.startswith("ld.global") and not set(one.targets) <= written:
            return False
        # The last operand is the number of bytes to copy; the rest is filled with 0.
        if one.name.startswith("cp.async.c") and not one.name.endswith("_group") and len(one.operands) < 4:
            return False
        if not one.name.startswith("st."):
            written.update(one.targets)
    return True


def test_masked_loads_have_another_value(compiled):
    for name, code in compiled.items():
        assert has_values(code), name
        assert name == "rows" or ptx.count(code, lambda one: one.predicated and one.name.startswith("ld.global")), name


def test_results_are_summed_without_atomics(compiled):
    for name, code in compiled.items():
        assert not any(one.name.startswith(("atom.", "red.")) for one in code.instructions), name
        assert not any(one.startswith("redux.") and not one.endswith(("32",)) for one in code.names), name


def test_products_with_zero_that_find_non_finite_sums_are_not_simplified(compiled):
    for name, code in compiled.items():
        if name in ("forward", *GRADIENTS):
            assert ptx.count(code, lambda one: one.name == "mul.f32" and one.operands[-1] == "0f00000000") > 0, name


def test_masked_differences_are_not_contracted(call, compiled):
    """t of the largest key is 0 if a selection stands between product and difference. ptxas would contract them
    without."""
    variant = Variant(call[1])
    for name, code in compiled.items():
        if name not in FORWARD:
            continue
        operations = {(t.name, before.name if (before := code.source(t)) else "") for t in of_weights(code)}
        assert ("sub.f32", "mul.f32") not in operations and ("sub.f32", "fma.rn.f32") not in operations, name
        assert ("sub.f32", "selp.f32") in operations, name
        fused = any(t == "fma.rn.f32" for t, _ in operations)
        assert fused == (not variant.few and not variant.masked and "documents" not in variant.text), name


def test_a_masked_load_without_another_value_is_found():
    """Triton 3.9 fills such a register with 0, which its documentation does not promise."""
    load = "@%p1 ld.global.v2.b32 { %r1, %r2 }, [ %rd1 + 0 ];"
    assert not has_values(ptx.read(load)) and not has_values(ptx.read("mov.u32 %r1, 0x0;\n" + load))
    assert has_values(ptx.read("mov.u32 %r1, 0x0;\nmov.b32 %r2, %r1;\n" + load))
    copy = "cp.async.ca.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x4"
    assert not has_values(ptx.read(copy + ";")) and has_values(ptx.read(copy + ", %r2;"))
