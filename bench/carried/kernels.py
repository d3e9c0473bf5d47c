#!/usr/bin/env python3
"""Compiles the kernels of the carried folder into one archive, for a chip that need not be present.

    bench/carried/kernels.py ARCHIVE [--chip sm_90] [--seconds 300] [--jobs N]

An interrupted run, or another one, continues from ARCHIVE.cache; kernels of other sources there are deleted.

It runs with the version of Triton of the other machine, and needs no GPU. There `unpack` fills Triton's cache from the
archive if chip and version match; missing kernels are compiled there. PYTHONPATH must have isentrope.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton

sys.path.append(str(Path(__file__).parents[2]))
from bench.gpu import works
from bench.work import Work

WANTED = "carried.json"
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def use_portable_keys() -> None:
    """Makes keys of Triton's cache depend only on the kernel, its options, the chip and Triton's version. Triton's own
    also depend on its files, which differ between builds of one version for several versions of Python."""
    import triton.compiler.compiler as compiler

    def key(src: Any, backend: Any, options: Any, env_vars: Any) -> str:
        return f"{triton.__version__}-{src.hash()}-{backend.target.arch}-{options.hash()}"

    compiler.get_cache_key = key


def tasks() -> list[tuple[str, Any]]:
    """Returns all tasks whose kernels are compiled, the most urgent first.

    Lines that once failed are the first result of a run. Timed calls would compile one kernel after the other there. All
    other problems and tiles compile on every core, and few of them share a kernel."""
    from bench.gpu.systems import SINGLE
    from isentrope.gpu import plan
    from isentrope.gpu.candidates import candidates, keys
    from isentrope.gpu.pairwise import ONCE_FAILED

    chip = plan.chip_of(None)
    timed = dict.fromkeys([*works.DECODED, *works.SHAPES, *works.CALLS])
    others = [line for line in dict.fromkeys([*works.COMMON, *works.problem_lines()]) if line not in ONCE_FAILED]
    listed: list[tuple[str, Any]] = [("line", line) for line in ONCE_FAILED]
    for work in timed:
        listed += [("work", (work, statistics)) for statistics in (False, True, *(SINGLE if work.kind == "statistics" else ()))]
    listed += [("line", line) for line in others]
    listed += [("tiles", (key, tiles, chip)) for key in keys() for tiles in candidates(key, chip)]
    return listed + [("generated", index) for index in range(works.GENERATED)]


def cache_of(archive: Path) -> Path:
    """Returns the folder of an archive's kernels. It is emptied if the sources of its kernels have changed."""
    from isentrope.gpu.tile_table import kernels_hash

    cache = Path(f"{archive.resolve()}.cache")
    mark = cache / "source"
    if not mark.exists() or mark.read_text() != kernels_hash():
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir(parents=True)
        mark.write_text(kernels_hash())
    return cache


def start_worker(architecture: int) -> None:
    """Makes calls on CPU tensors compile their kernels for the chip, and return undefined results."""
    from triton.backends.compiler import GPUTarget

    import isentrope.gpu
    from isentrope.gpu import ahead, operators, plan

    use_portable_keys()
    chip = plan.nvidia(*divmod(architecture, 10), units=132)
    ahead.compile_instead_of_running(GPUTarget("cuda", architecture, 32), chip)
    operators.register("CPU")
    isentrope.gpu._INTERPRETED = SimpleNamespace(value=True)  # its functions take CPU tensors


def compile_task(task: tuple[str, Any]) -> str:
    """Returns the error of a task, or ""."""
    from isentrope.gpu import tuning
    from isentrope.gpu.problems import Problem

    kind, what = task
    try:
        if kind == "tiles":
            tuning.compile_candidate(*what)
        elif kind == "work":
            call(*what)
        else:
            problem = Problem.of_line(what) if kind == "line" else Problem.generated(works.SEED, what, works.SIZE)
            if not problem.unsupported:
                problem.run("cpu")
    except Exception as error:
        return str(error).splitlines()[0][:200] if str(error) else repr(error)
    return ""


def call(work: Work, statistics: bool | str) -> None:
    """Makes the call of gpu_systems.Isentrope, on uninitialised memory."""
    from bench.gpu.systems import Isentrope

    queries = (work.batch, work.heads, work.queries, work.dim)
    keys = (work.batch, work.key_heads, work.keys, work.dim)
    tensors = [torch.empty(shape, dtype=DTYPES[work.dtype]) for shape in (queries, keys, keys, queries)]
    Isentrope(statistics).prepare(work, *tensors)()


def pack(cache: Path, archive: Path, chip: str) -> int:
    """Writes the binaries of a cache folder into an archive. Returns their number."""
    files = [file for file in sorted(cache.glob("*/*")) if file.suffix in (".cubin", ".json")]
    files = [file for file in files if not file.name.startswith("__grp__")]
    (cache / WANTED).write_text(json.dumps({"chip": chip, "triton": triton.__version__}))
    with tarfile.open(archive, "w:xz") as tar:
        for file in [cache / WANTED, *files]:
            tar.add(file, file.relative_to(cache))
    return sum(file.suffix == ".cubin" for file in files)


def unpack(archive: Path, cache: Path, architecture: int) -> str:
    """Fills Triton's cache folder from an archive. Returns a description of the result."""
    if not archive.exists():
        return "no kernels were compiled before: they are compiled here"
    with tarfile.open(archive) as tar:
        made_for = json.load(tar.extractfile(WANTED))
        if made_for != {"chip": f"sm_{architecture}", "triton": triton.__version__}:
            made, here = f"{made_for['chip']} by Triton {made_for['triton']}", f"sm_{architecture} with Triton {triton.__version__}"
            return f"kernels were compiled before for {made}, this is {here}: they are compiled here"
        if not (cache / WANTED).exists():  # nor did an earlier run
            tar.extractall(cache, filter="data")
    count = 0
    for folder in (path for path in cache.iterdir() if path.is_dir()):
        files = {file.name: str(file) for file in folder.iterdir() if not file.name.startswith("__grp__")}
        for name in (name for name in files if name.endswith(".json")):
            (folder / f"__grp__{name}").write_text(json.dumps({"child_paths": files}))
            count += 1
    return f"{count} kernels were compiled before"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--chip", default="sm_90", help="sm_80, sm_90, ... (sm_90)")
    parser.add_argument("--seconds", type=float, default=300, help="time after which the rest is left to the other machine (300)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    cache = cache_of(options.archive)
    os.environ |= {"TRITON_CACHE_DIR": str(cache), "TRITON_STORE_BINARY_ONLY": "1", "TRITON_INTERPRET": "0"}
    until, architecture = time.monotonic() + options.seconds, int(options.chip.removeprefix("sm_"))
    start_worker(architecture)
    listed = tasks()
    from isentrope.gpu.processes import Processes

    with Processes(options.jobs, compile_task, listed, start_worker, architecture) as processes:
        for done in range(len(listed)):
            try:
                task, error, crash = processes.next(max(until - time.monotonic(), 0.1))
            except TimeoutError:
                print(f"[kernels] {len(listed) - done} of {len(listed)} left out: {options.seconds:g} s are over", flush=True)
                break
            if crash or error:
                print(f"not compiled: {task}: {crash or error}", flush=True)
            if done % 20 == 19:
                print(f"[kernels] {done + 1} of {len(listed)}, {until - time.monotonic():.0f} s left", flush=True)
    print(f"{options.archive}: {pack(cache, options.archive, options.chip)} kernels for {options.chip}, Triton {triton.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
