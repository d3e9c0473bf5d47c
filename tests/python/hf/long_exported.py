"""Exported and compiled calls and models that run without the Python package."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from long_compiled_models import FAMILIES, model

import isentrope

# Runs an exported program, and its compiled form if there is one, with torch and the operators' library alone.
ELSEWHERE = """
import sys, torch
library, exported, package, inputs, results = sys.argv[1:]
torch.ops.load_library(library)
given = torch.load(inputs)
found = [torch.export.load(exported).module()(*given)]
if package:
    found.append(torch._inductor.aoti_load_package(package)(*given))
assert not any(name.split(".")[0] in ("isentrope", "transformers") for name in sys.modules)
torch.save(found, results)
"""
LENGTH = torch.export.Dim("length", min=2, max=60)


class Attend(torch.nn.Module):
    def forward(self, q, k, v):
        output, statistics = isentrope.attention(q, k, v, rule="logn(4)", causal=True, return_stats=("entropy",))
        return output, statistics.entropy


class Logits(torch.nn.Module):
    def __init__(self, made):
        super().__init__()
        self.made = made

    def forward(self, tokens):
        return self.made(input_ids=tokens, use_cache=False).logits


def results_elsewhere(folder, module, example, inputs, dynamic_shapes, compiled):
    """Returns the module's results for the inputs in another process: exported and, if `compiled`, compiled."""
    with torch.no_grad():
        exported = torch.export.export(module, example, dynamic_shapes=dynamic_shapes)
    torch.export.save(exported, folder / "exported.pt2")
    package = ""
    if compiled:
        package = torch._inductor.aoti_compile_and_package(exported, package_path=str(folder / "package.pt2"))
    torch.save(inputs, folder / "inputs.pt")
    library = Path(isentrope.__path__[0]) / "libisentrope_operators.so"
    files = [library, folder / "exported.pt2", package, folder / "inputs.pt", folder / "results.pt"]
    process = subprocess.run([sys.executable, "-c", ELSEWHERE, *files], capture_output=True, text=True,
                             env={"PATH": "/usr/bin:/bin"})  # fmt: skip
    assert process.returncode == 0, process.stderr
    results = torch.load(folder / "results.pt")
    assert len(results) == 1 + compiled
    return results


def test_a_call(tmp_path):
    example, inputs = (tuple(torch.randn(2, 2, length, 16) for _ in range(3)) for length in (8, 13))
    for found in results_elsewhere(tmp_path, Attend(), example, inputs, [{2: LENGTH}] * 3, compiled=True):
        for got, want in zip(found, Attend()(*inputs), strict=True):
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_whole_model(tmp_path, name):
    whole = Logits(model(name))
    example, inputs = ((torch.randint(3, 61, (2, length)),) for length in (9, 17))
    for got in results_elsewhere(tmp_path, whole, example, inputs, [{1: LENGTH}], compiled=name == "llama"):
        torch.testing.assert_close(got, whole(*inputs), rtol=1e-4, atol=1e-5)
