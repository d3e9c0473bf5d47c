"""Compiles and runs the test programs for scripts/mutate."""

import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build/mutate"
TESTS = [f"tests/{name}.cc" for name in (
    "src/row/row_promises_test", "tools/check/generated_test", "src/call/mask_test", "src/cpu/row_paths_test",
    "src/cpu/memory_bounds_test", "src/call/attention_state_test", "src/call/attention_test", "src/call/quantized_cache_test",
    "src/call/dropout_test", "src/call/threads_test", "src/cpu/amx/main", "src/cpu/amx/amx_attention_test",
    "src/cpu/amx/amx_emulator_test", "support/amx_emulator")]  # fmt: skip
FOLDERS = "src/call", "src/cpu", "src/reference", "src/row", "src/rules", "tools/check"
SOURCES = [
    *TESTS,
    *sorted(str(x.relative_to(ROOT)) for folder in FOLDERS for x in (ROOT / folder).rglob("*.cc")
            if x.name != "external_results.cc")]  # fmt: skip
# Kernels are compiled for one instruction set each, a small part of the library's.
AVX3, PORTABLE = "AVX-512", "portable"
OPTIONS = {AVX3: ["-march=skylake-avx512", "-DHWY_COMPILE_ONLY_STATIC"], PORTABLE: ["-DHWY_COMPILE_ONLY_SCALAR"]}
# No test contracts sums. -O1 compiles a kernel in 3 s instead of 4, but its tests take five times as long.
COMMON = ["g++", "-std=c++20", "-O2", "-ffp-contract=off", "-w", "-pthread", "-fopenmp", "-I.", "-Iinclude"]
PATIENCE = 60  # seconds of processor time; the longest run takes 25, so an endless loop is caught
# Tests of 25 s run after those that take 2 s and find most.
LATER = "*OnTarget*:*GeneratedProblems.*:*ASplitCache*:Generator.*"


def run(command, **options):
    return subprocess.run([str(x) for x in command], capture_output=True, text=True, **options)


@dataclass
class Run:
    """Tests of kernels for one instruction set, with AVX-512's or AMX's products of bf16 pairs."""

    name: str
    instructions: str
    filters: tuple
    options: tuple = ("--avx512",)

    def failing_test(self, program):
        return next((test for part in self.filters if (test := self.failing_of(program, part))), None)

    def failing_of(self, program, part):
        # Stops at the first wrong number. choom lets the kernel kill a mutant that exhausts memory first.
        command = ["choom", "-n", "1000", "--", "prlimit", f"--cpu={PATIENCE}:{PATIENCE + 1}", program, *self.options]
        try:
            process = run([*command, "--gtest_break_on_failure", f"--gtest_filter={part}"], timeout=20 * PATIENCE)
        except subprocess.TimeoutExpired:
            return "a test that does not end"
        if process.returncode == 0:
            return None
        began = re.findall(r"\[ RUN      \] (\S+)", process.stdout) or ["the first call"]
        return began[-1] + (", which does not end" if process.returncode == -signal.SIGXCPU else "")


PARTS = (f"-Mask.*:Amx*:{LATER}", "Mask.*", LATER)
RUNS = (Run(AVX3, AVX3, PARTS), Run("AMX", AVX3, ("Amx*:*/AVX3",), ()), Run(PORTABLE, PORTABLE, PARTS))


def runs_of(changed):
    """Returns the runs that may detect a change: for files of one kind of product, only those that use it."""
    names = {name for word, name in (("amx", "AMX"), ("avx512", AVX3)) if word in changed}
    return [x for x in RUNS if not names or x.name in names]


def inclusions():
    """Returns, for each file of the project, the sources that include it."""
    files = [x for top in ("src", "include", "tests", "tools/check") for x in (ROOT / top).rglob("*.*")]
    text_of = {str(x.relative_to(ROOT)): x.read_text() for x in files if x.suffix in (".h", ".cc")}
    direct = {}
    for name, text in text_of.items():
        names = re.findall(r'#include "([^"]+)"', text) + re.findall(r'HWY_TARGET_INCLUDE "([^"]+)"', text)
        direct[name] = [x if x in text_of else f"include/{x}" for x in names]
    made_of = {name: [] for name in text_of}
    for source in SOURCES:
        met, ahead = {source}, [source]
        while ahead:
            new = {x for x in direct.get(ahead.pop(), ()) if x in text_of} - met
            met |= new
            ahead += new
        for name in met:
            made_of[name].append(source)
    return made_of


def compiled(instructions, source, into, tree=None):
    """Compiles a source and returns the compiler's messages."""
    # A changed header precedes the original in the include path.
    first = ["-I", tree, "-I", tree / "include"] if tree else []
    options = OPTIONS[instructions] if source.startswith("src/cpu/") else []
    path = tree / source if tree and (tree / source).exists() else source
    into.parent.mkdir(parents=True, exist_ok=True)
    return run([COMMON[0], *first, *COMMON[1:], *options, "-c", path, "-o", into], cwd=ROOT)


class Programs:
    """Programs of all tests, from the unchanged sources or with one changed file."""

    def __init__(self):
        self.includers, self.lock = inclusions(), Lock()
        self.objects = PLACE / run(["git", "rev-parse", "HEAD"], cwd=ROOT).stdout.strip()
        changed = run(["git", "diff", "--quiet", "HEAD", "--", "src", "include", "tests", "tools/check"], cwd=ROOT).returncode
        if changed or not self.objects.exists():
            shutil.rmtree(PLACE, ignore_errors=True)
        self.objects.mkdir(parents=True, exist_ok=True)
        for each in RUNS:
            self.check(each)

    def check(self, each):
        """Requires that tests pass without a change."""
        passed = self.objects / f"passed on {each.name}"
        if passed.exists():
            return
        program = self.linked(each.instructions, self.objects / "tests", {})
        if (test := each.failing_test(program)) is not None:
            sys.exit(f"mutate: tests must pass without a change; got {test} on {each.name}")
        passed.touch()

    def unchanged(self, instructions, source):
        """Returns the object of an unchanged source, compiled once."""
        folder = instructions if source.startswith("src/cpu/") else "all"
        into = self.objects / folder / f"{source}.o"
        with self.lock:
            if not into.exists() and (made := compiled(instructions, source, into)).returncode:
                sys.exit(f"mutate: the sources must compile; {source}: {made.stderr[-2000:]}")
        return into

    def mutated(self, instructions, place, tree, changed):
        """Returns a program with the changed file; None if it does not compile."""
        folder = place / instructions
        if (folder / "tests.program").exists():
            return folder / "tests.program"
        again = {source: folder / f"{source}.o" for source in self.includers[changed]}
        if any(compiled(instructions, source, into, tree).returncode for source, into in again.items()):
            return None
        return self.linked(instructions, folder / "tests.program", again)

    def linked(self, instructions, into, again):
        """Links the program with these objects instead of the originals."""
        unchanged = [self.unchanged(instructions, source) for source in SOURCES if source not in again]
        # Changed objects come first, because the linker takes the first of several inline definitions.
        objects = [*again.values(), *unchanged]
        libraries = ["-lhwy", "-lgtest", "-lrapidcheck"]
        process = run(["g++", "-pthread", "-fopenmp", "-fuse-ld=gold", *objects, *libraries, "-o", into])
        return into if process.returncode == 0 else sys.exit(f"mutate: {process.stderr[-2000:]}")
