"""isentrope_cuda without a device and without compiling, from C++, C and JAX: kernels have names and parameters, but no
instructions."""

from types import SimpleNamespace

import pytest
from cuda_calls import CASES, IN, Case, called, compare, kernels, with_units

from isentrope.gpu import plan
from src.gpu.compiling import TARGETS


def without_code(launches):
    """Returns kernels.binary(), which compiles, for kernels whose names have the number of their launch."""

    def binary(launch, target):
        name = f"{launch.kernel.__name__}${launches.index(('sm_90', launch))}"
        kinds = [kind for _, kind in launch.signature if kind != "constexpr"] + ["*i8"] * 2
        parameters = (".param .u32" if kind in ("i32", "fp32") else ".param .u64" for kind in kinds)
        code = f".visible .entry {name}({', '.join(parameters)})"
        metadata = SimpleNamespace(
            global_scratch_size=0, profile_scratch_size=0, num_ctas=1, name=name, num_warps=4, shared=0,
        )  # fmt: skip
        return SimpleNamespace(metadata=metadata, hash=name[-12:], asm={"cubin": code.encode()})

    return binary


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder with the kernels of every case, and their launches by number."""
    wanted = list(dict.fromkeys(("sm_90", one) for case in CASES for one in case.launches(with_units("sm_90"))))
    path = tmp_path_factory.mktemp("kernels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "binary", without_code(wanted))
        kernels.write(path, wanted)
    return path, wanted


@pytest.mark.parametrize("case, language", [(case, language) for case in CASES for language in case.languages], ids=str)
def test_the_launches_are_those_of_python(case, language, folder, tmp_path):
    path, launches = folder
    recorded, made, named = compare(case, path, "sm_90", tmp_path, **IN[language])
    for one, wanted in made:
        assert launches[int(one["symbol"].partition("$")[2])] == ("sm_90", wanted)
    # The C interface opens a device of its own, as JAX does, which keeps it with its tables.
    assert sum(one["call"] == "release" for one in recorded) == {"C++": 1, "C": 2, "JAX": 1}[language]
    assert language == "JAX" or recorded[-1] == {"call": "release", "allocations": 0}
    copies = [one for one in recorded if one["call"] == "copy"]
    if case.backward:
        # Statistics are read side by side, and so are their gradients.
        assert len(copies) == {"none": 1, "lse": 2, "entropy": 4, "all": 7 + 6}[case.wanted]
        assert {named["lse"]} <= {one["from"] for one in copies}
    else:
        assert len(copies) == {"lse": 1, "entropy": 2, "all": 8}[case.wanted]
        assert {named["lse"]} <= {one["to"] for one in copies}


OF_POSITIONS = Case("lse", "dt=bf16 shape=2x8:2x256x256x128 mask=causal:bottom_right rule=attn_temperature_tuning bwd=1")


@pytest.mark.parametrize("language", ["C++", "C"])
@pytest.mark.parametrize("case, name", [
    (Case("all", "dt=f16 shape=1x8x300x300x128"), "output"), (OF_POSITIONS, "dk"), (OF_POSITIONS, "d_output"),
    (Case("entropy", "dt=f16 shape=2x8:2x128x128x64 bias=1 sink=1 bwd=1"), "d_bias"),
], ids=str)  # fmt: skip
def test_an_error_comes_before_the_first_launch(case, name, language, folder, tmp_path):
    """Kernels that write lambda or dq come before those that cannot take these arrays."""
    done, recorded = called(folder[0], case.wanted, case.line, tmp_path, ISENTROPE_MISALIGNED=name, **IN[language])
    assert done.returncode == 2 and f"[attention] {name} must be aligned to 16 bytes; got " in done.stderr, done.stderr
    assert {one["call"] for one in recorded} <= {"attribute", "release"}


def test_kernels_for_cpp_have_no_tensor_descriptors(monkeypatch):
    """Also where Python's tiles ask for them."""
    tiles = plan.tiles
    monkeypatch.setattr(plan, "tiles", lambda *x, **y: tiles(*x, **y)._replace(descriptors=True))
    found = kernels.wanted_launches(TARGETS["sm_90"], "bf16", 64, "lse", gradients=True)
    assert len(found) > 10 and not any(kind.startswith("tensordesc") for one in found for _, kind in one.signature)
