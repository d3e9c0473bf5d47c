"""llama.cpp with the backend for ggml: its own test of flash attention, a language model, and libraries that it must do without."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from case import Case
from llama_sources import PACKAGE, REPOSITORY, backend, programs, sources

TITLE = f"llama.cpp with the backend, {PACKAGE.replace('==', ' ')}"
DIFFERS: dict[str, str] = {}
MOST = 1e-3
"""Largest relative difference of the perplexity."""
PROMPT = "In the beginning God created the heaven and the earth. And the earth was"


def output_of(*command: object, **environment: str) -> str:
    """Returns what a program prints on both outputs, without colours. Raises AssertionError if it fails."""
    done = subprocess.run(
        [str(x) for x in command], capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, env=os.environ | environment
    )
    text = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    assert done.returncode == 0, text[-500:]
    return text


def cases(folder: Path) -> Iterator[Case]:
    tools = programs(folder, "test-backend-ops", "llama-perplexity", "llama-completion")
    tree = sources(folder)
    library = backend(folder, tree)
    yield from operations(tools, library)
    model = subprocess.run([REPOSITORY / "scripts" / "language-model", "smollm2"], check=True, capture_output=True, text=True).stdout.strip()
    for cache in ("f16", "bf16", "f32"):
        yield Case(f"perplexity {cache}", functools.partial(check_perplexity, tools, library, model, cache))
        yield Case(f"greedy tokens {cache}", functools.partial(check_tokens, tools, library, model, cache))
    yield Case("rule", functools.partial(check_rule, tools, library, model))
    yield Case("recipe", functools.partial(check_recipe, tools, library, model, tree))
    yield Case("llama-cpp-python", functools.partial(check_python, folder, library, model))


def operations(tools: Path, library: Path) -> Iterator[Case]:
    """Yields the cases of test-backend-ops, which compares with the CPU's backend by a bound of its own."""
    text = output_of(tools / "test-backend-ops", "test", "-o", "FLASH_ATTN_EXT", "-b", "ISENTROPE", GGML_BACKEND_PATH=str(library))
    for name, outcome in re.findall(r"^\s*(FLASH_ATTN_EXT\(.*?\)): (.*)$", text, re.MULTILINE):
        quantized = "quantized or unequal types of keys and values" if outcome.startswith("not supported") else ""
        yield Case(name, functools.partial(_is_ok, outcome), quantized)


def _is_ok(outcome: str) -> None:
    assert outcome.startswith("OK"), outcome


def both(run: functools.partial, library: Path, *options: object) -> list[str]:
    """Returns what llama.cpp prints without the backend and with it."""
    with_backend = run(*options, GGML_BACKEND_PATH=str(library))
    assert "isentrope " in with_backend, with_backend[-500:]
    return [run(*options), with_backend]


def check_perplexity(tools: Path, library: Path, model: str, cache: str) -> None:
    run = functools.partial(
        output_of, tools / "llama-perplexity", "-m", model, "-f", REPOSITORY / "data" / "king-james.txt", "-c", 2048, "--chunks", 2,
        "-fa", "on", "-t", 2,
    )  # fmt: skip
    stock, ours = (float(re.search(r"PPL = ([0-9.]+)", text)[1]) for text in both(run, library, "-ctk", cache, "-ctv", cache))
    assert abs(ours / stock - 1) <= MOST, f"perplexity {ours}, of llama.cpp {stock}"


def completion(tools: Path, model: str) -> functools.partial:
    return functools.partial(
        output_of, tools / "llama-completion", "-m", model, "-p", PROMPT, "-n", 100, "--temp", 0, "-no-cnv", "-fa", "on", "-t", 2,
    )  # fmt: skip


def text_after_prompt(output: str) -> str:
    return output[output.index(PROMPT) :].split("\n\n")[0]


def check_tokens(tools: Path, library: Path, model: str, cache: str) -> None:
    run = completion(tools, model)
    stock, ours = map(text_after_prompt, both(run, library, "-ctk", cache, "-ctv", cache))
    assert ours == stock, f"{ours!r}, of llama.cpp {stock!r}"


def check_rule(tools: Path, library: Path, model: str) -> None:
    """A rule that is 1 / sqrt(d) leaves the text; one that hardly looks at scores changes it."""
    run = functools.partial(completion(tools, model), GGML_BACKEND_PATH=str(library))
    stock, same, flat = (text_after_prompt(run(ISENTROPE_RULE=rule)) for rule in ("", "standard", "scaled(gain=0.01)"))
    assert same == stock and flat != stock, f"{stock!r}, {same!r}, {flat!r}"


def check_recipe(tools: Path, library: Path, model: str, tree: Path) -> None:
    options = ("-m", model, "-p", PROMPT, "-n", 100, "--temp", 0, "-no-cnv", "-t", 2)
    by_recipe = output_of(REPOSITORY / "examples" / "llama_cpp", tree, tools / "llama-completion", *options)
    ours = completion(tools, model)(GGML_BACKEND_PATH=str(library))
    assert "isentrope " in by_recipe and text_after_prompt(by_recipe) == text_after_prompt(ours), by_recipe[-500:]


PYTHON = """
import sys
import llama_cpp
from llama_cpp._ggml import libggml
libggml.ggml_backend_load_all()
model = llama_cpp.Llama(sys.argv[1], n_ctx=1024, flash_attn=True, n_threads=2, verbose=False)
print(model(sys.argv[2], max_tokens=40, temperature=0)["choices"][0]["text"])
"""


def check_python(folder: Path, library: Path, model: str) -> None:
    """llama-cpp-python compiles its own copy of llama.cpp, for which the backend is built again."""
    environment = folder / "llama-cpp-python"
    python = environment / "bin" / "python"
    if not list(environment.glob("lib/*/site-packages/llama_cpp_python-*")):
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "llama-cpp-python==0.3.36"], check=True)
    run = functools.partial(output_of, python, "-c", PYTHON, model, PROMPT)
    stock, ours = both(run, library)
    assert ours.strip().endswith(stock.strip()), f"{ours!r}, of llama.cpp {stock!r}"
