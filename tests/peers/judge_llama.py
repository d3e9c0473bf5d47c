"""llama.cpp with the backend for ggml: its own test of flash attention, and a language model in C++ and Python."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gguf

from case import Case
from llama_sources import PACKAGE, REPOSITORY, backend, compiled, python_sources, sources

TITLE = f"llama.cpp with the backend, {PACKAGE.replace('==', ' ')}"
MOST = {"f32": 1e-3, "f16": 1e-3, "bf16": 2**-8}
"""Largest relative difference of the perplexity, and margins of a logit below which a greedy token may differ. Over keys in bf16
llama.cpp rounds queries to bf16, at 2^-9, and so do our products of bf16, each in its own order."""
TEXT = REPOSITORY / "data" / "king-james.txt"


def output_of(*command: object, **environment: str) -> str:
    """Returns what a program prints on both outputs, without colours. Raises AssertionError if it fails."""
    done = subprocess.run(
        [str(x) for x in command], capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, env=os.environ | environment
    )
    text = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    assert done.returncode == 0, text[-500:]
    return text


def cases(folder: Path) -> Iterator[Case]:
    tree, library = sources(folder), backend(folder, sources(folder))
    judge = compiled(folder, tree / "tests" / "test-backend-ops.cpp", "ggml", "ggml-base")
    yield from operations(judge, library)
    driver = compiled(folder, Path(__file__).parent / "llama_driver.cc", "llama", "ggml", "ggml-base")
    model = dequantized(folder)
    for cache in ("f16", "bf16", "f32"):
        yield Case(f"language model {cache}", functools.partial(check_model, driver, library, model, cache))
    yield Case("rule", functools.partial(check_rule, driver, library, model))
    yield Case("recipe", functools.partial(check_recipe, driver, tree, model))
    yield Case("llama-cpp-python", functools.partial(check_python, folder, model))


def operations(judge: Path, library: Path) -> Iterator[Case]:
    """Yields the cases of test-backend-ops, which compares with the CPU's backend by a bound of its own.

    Without a rule the CPU would compute the small ones. This rule is the scale that the cases have.
    """
    environment = {"GGML_BACKEND_PATH": str(library), "ISENTROPE_RULE": "standard"}
    text = output_of(judge, "test", "-o", "FLASH_ATTN_EXT", "-b", "ISENTROPE", **environment)
    for name, outcome in re.findall(r"^\s*(FLASH_ATTN_EXT\(.*?\)): (.*)$", text, re.MULTILINE):
        left_out = "quantized or unequal types of keys and values" if outcome.startswith("not supported") else ""
        yield Case(name, functools.partial(check_outcome, outcome), left_out)


def check_outcome(outcome: str) -> None:
    assert outcome.startswith("OK"), outcome


def dequantized(folder: Path) -> Path:
    """Writes SmolLM2 in f32. Products of its quantized weights round activations to 8 bits, and amplify every last bit."""
    path = folder / "smollm2-f32.gguf"
    if path.exists():
        return path
    script = subprocess.run([REPOSITORY / "scripts" / "language-model", "smollm2"], check=True, capture_output=True, text=True)
    reader = gguf.GGUFReader(script.stdout.strip())
    writer = gguf.GGUFWriter(path.with_suffix(".part"), arch=reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name == "general.architecture" or field.name.startswith("GGUF."):
            continue  # the writer's own
        is_array = field.types[0] == gguf.GGUFValueType.ARRAY
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=field.types[-1] if is_array else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.with_suffix(".part").rename(path)


def results(driver: Path, model: Path, cache: str, **environment: str) -> dict:
    """Returns the perplexity, and greedy tokens with their margins. The backend must be in the log exactly if the environment names it."""
    text = output_of(driver, model, TEXT, cache, os.cpu_count(), **environment)
    assert ("isentrope " in text) == bool(environment.get("GGML_BACKEND_PATH")), text[-500:]
    return json.loads(re.search(r'^\{"perplexity.*$', text, re.MULTILINE)[0])


def check_model(driver: Path, library: Path, model: Path, cache: str) -> None:
    stock, ours = results(driver, model, cache), results(driver, model, cache, GGML_BACKEND_PATH=str(library))
    assert abs(ours["perplexity"] / stock["perplexity"] - 1) <= MOST[cache], f"perplexity {ours['perplexity']}, of llama.cpp {stock['perplexity']}"
    # From a token with a smaller margin on, both texts are right.
    clear = next((i for i, (_, margin) in enumerate(stock["greedy"]) if margin < MOST[cache]), len(stock["greedy"]))
    tokens = [[token for token, _ in found["greedy"][:clear]] for found in (stock, ours)]
    assert clear >= 10 and tokens[0] == tokens[1], f"the first {clear} tokens {tokens[1]}, of llama.cpp {tokens[0]}"


def check_rule(driver: Path, library: Path, model: Path) -> None:
    """A rule that is 1 / sqrt(d) changes nothing; one that hardly looks at scores makes the model worse."""
    run = functools.partial(results, driver, model, "f16", GGML_BACKEND_PATH=str(library))
    stock, same, flat = run(), run(ISENTROPE_RULE="standard"), run(ISENTROPE_RULE="scaled(gain=0.01)")
    assert same == stock and flat["perplexity"] > 2 * stock["perplexity"], f"{stock}, {same}, {flat}"


def check_recipe(driver: Path, tree: Path, model: Path) -> None:
    text = output_of(REPOSITORY / "examples" / "llama_cpp", tree, driver, model, TEXT, "f16", os.cpu_count())
    assert "isentrope " in text and '{"perplexity' in text, text[-500:]


PYTHON = """
import json, sys
import llama_cpp
from llama_cpp._ggml import libggml
libggml.ggml_backend_load_all()
model = llama_cpp.Llama(sys.argv[1], n_ctx=1024, flash_attn=True, verbose=False)
print(json.dumps(model("In the beginning God created", max_tokens=40, temperature=0)["choices"][0]["text"]))
"""


def check_python(folder: Path, model: Path) -> None:
    """llama-cpp-python compiles its own copy of llama.cpp, for which the backend is built."""
    environment = folder / "llama-cpp-python"
    python = environment / "bin" / "python"
    if not list(environment.glob("lib/*/site-packages/llama_cpp_python-*")):
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", python_sources(folder)], check=True)
    library = backend(folder, python_sources(folder) / "vendor" / "llama.cpp", "ggml-isentrope-python")
    stock = output_of(python, "-c", PYTHON, model)
    ours = output_of(python, "-c", PYTHON, model, GGML_BACKEND_PATH=str(library))
    # The text is the first line, because the log follows what a program prints.
    assert "isentrope " in ours and ours.splitlines()[0] == stock.splitlines()[0], f"{ours!r}, of llama.cpp {stock!r}"
