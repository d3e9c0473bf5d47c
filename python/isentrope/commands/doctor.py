"""isentrope doctor: reports what is installed, the backend of each device, and whether results are correct."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

import torch

from isentrope.commands.frame import Parser, command, program, put, whole_number

_GGML_BACKEND = "libggml-isentrope.so"
_PACKAGES = ("torch", "numpy", "triton", "transformers", "gguf")


def _parser() -> Parser:
    parser = Parser(
        prog="isentrope doctor",
        description="Shows versions, processors, instruction sets, the backend of each device and that for llama.cpp, and compares "
        "random problems with the float64 reference. The exit status is 1 if one fails.",
    )
    parser.add_argument("--seconds", type=whole_number(1, 3600), default=5, help="duration of the check (5)")
    return parser


def _version_of(package: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


def _versions() -> str:
    found = {name: _version_of(name) for name in _PACKAGES}
    packages = [f"{name} {version}" if version else f"no {name}" for name, version in found.items()]
    return ", ".join([f"Python {platform.python_version()}", *packages])


def processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def _devices() -> dict[str, str]:
    """Returns the backend of each device of this machine, or why there is none."""
    devices = {}
    for kind in ("cuda", "xpu"):
        module = torch.get_device_module(kind)
        if not module.is_available():
            built = torch.backends.cuda.is_built() if kind == "cuda" else torch.xpu._is_compiled()
            devices[kind] = "none: torch sees no such device" if built else "none: this torch was built without it"
            continue
        for index in range(module.device_count()):
            devices[f"{kind}:{index}"] = f"{module.get_device_name(index)}: {_on_a_gpu(kind, index)}"
    return devices


def _on_a_gpu(kind: str, index: int) -> str:
    try:
        from isentrope.gpu.plan import chip_of
        from isentrope.gpu.tile_table import table_of

        chip = chip_of(torch.device(kind, index))
        return f"isentrope's kernels in Triton; {table_of(chip.kind, chip.card).source}"
    except (ImportError, ValueError) as error:
        return f"none of isentrope's kernels: {error}"


def _ggml_backend() -> str:
    """Returns where the backend for llama.cpp is, whether GGML_BACKEND_PATH names it, and whether the file is whole."""
    named = os.environ.get("GGML_BACKEND_PATH")
    folder = Path(program("isentrope", "checks")).resolve().parent
    places = [Path(named)] if named else [folder.parent / "lib" / _GGML_BACKEND, folder / _GGML_BACKEND]
    library = next((place for place in places if place.is_file()), None)
    if library is None:
        return f"none: no {places[0]}, which docs/recipes/llama-cpp.md builds"
    if not _is_whole(library):
        return f"none: {library} is not a whole library; build it again"
    return f"{library}, by GGML_BACKEND_PATH" if named else f"{library}; llama.cpp loads it if GGML_BACKEND_PATH names it"


def _is_whole(library: Path) -> bool:
    """Returns whether a 64-bit ELF file reaches to the end of its table of sections, which is the last part of it."""
    header = library.read_bytes()[:64]
    if len(header) < 64 or header[:4] != b"\x7fELF":
        return False
    (offset,) = struct.unpack_from("<Q", header, 0x28)
    size, count = struct.unpack_from("<2H", header, 0x3A)
    return offset + size * count <= library.stat().st_size


def _program_output(*arguments: str) -> Any:
    """Returns the JSON output of the program. A failed check has exit status 1."""
    command = [program("isentrope", "checks"), *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise ValueError(done.stderr)
    return json.loads(done.stdout)


def _check(seconds: int) -> dict[str, Any]:
    """Checks random problems on every instruction set, a hundred at a time, for the given seconds."""
    targets: dict[str, float] = {}
    outcomes: dict[str, int] = {}
    until = time.monotonic() + seconds
    seed = 0
    while not seed or time.monotonic() < until:
        seed += 1
        for verdict in _program_output("check", "--generate", "100", "--seed", str(seed))["verdicts"]:
            outcomes[verdict["outcome"]] = outcomes.get(verdict["outcome"], 0) + 1
            ratios = [verdict[way]["error_over_budget"] for way in ("forward", "backward") if way in verdict]
            targets[verdict["target"]] = max([targets.get(verdict["target"], 0.0), *ratios])
    return {"problems": 100 * seed, "targets": targets, "outcomes": outcomes}


def _body(options: argparse.Namespace) -> int:
    version = _version_of("isentrope")
    put(f"isentrope {version}" if version else "isentrope, not installed: a build folder")
    put(f"versions    {_versions()}")
    put(f"processor   {processor_name()}, {os.cpu_count()} processors, {torch.get_num_threads()} threads of torch")
    check = _check(options.seconds)
    first, *others = check["targets"]
    put(f"cpu         isentrope's kernels for {first}, the best here{'; also ' + ', '.join(others) if others else ''}")
    timed = _program_output("bench", "dt=bf16 shape=1x1x4x4x32", "--repetitions", "1")[0]
    put(f"bf16        products by {timed['bf16_products']}")  # the instructions, and why better ones are not used
    for device, what in _devices().items():
        put(f"{device:<11} {what}")
    put(f"llama.cpp   {_ggml_backend()}")
    failed = check["outcomes"].get("FAILED", 0)
    text = f"{failed} of them outside their error budget" if failed else "each within its error budget"
    worst = max(check["targets"].values())
    put(f"check       {check['problems']} problems on {len(check['targets'])} instruction sets against float64: {text}"
        f" (at most {worst:.2f} of it)")  # fmt: skip
    return 1 if failed else 0


main = command("doctor", _parser, _body, __name__)
