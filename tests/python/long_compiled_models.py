"""Whole models of transformers under torch.compile, and calls that run where Python's isentrope is not."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from families import CAUSAL
from transformers import AutoModelForCausalLM, StaticCache

import isentrope.hf

FAMILIES = ("llama", "gemma2", "gpt2", "gpt_neox", "qwen3")
RULE = "log_length"


def model(name):
    torch.manual_seed(5)
    made = AutoModelForCausalLM.from_config(CAUSAL[name](), attn_implementation="isentrope")
    isentrope.hf.set_rule(made, RULE)
    return made.eval()


def step(made, run, length):
    """Logits, and the gradient of every weight."""
    tokens = torch.randint(3, 61, (2, length), generator=torch.Generator().manual_seed(length))
    made.zero_grad()
    # The loss is computed here: that of transformers logs a warning for GPT-2, which breaks the graph.
    logits = run(input_ids=tokens, use_cache=False).logits
    torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    return logits.detach(), [(name, p.grad.clone()) for name, p in made.named_parameters() if p.grad is not None]


@pytest.mark.parametrize("name, backend", [*((name, "aot_eager") for name in FAMILIES), ("llama", "inductor")])
def test_a_compiled_model_is_the_model(name, backend):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    made = model(name)
    compiled = torch.compile(made, dynamic=True, backend=backend)
    for length in (9, 12, 17):
        (want, wanted), (got, gradients) = step(made, made, length), step(made, compiled, length)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        for (weight, a), (_, b) in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5, msg=lambda m: f"{weight}: {m}")
    breaks = torch._dynamo.utils.counters["graph_break"]
    assert not breaks, f"the graph is one: {dict(breaks)}"
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2, "not one for each length"


@pytest.mark.parametrize("name", FAMILIES)
def test_steps_on_a_static_cache(name):
    torch._dynamo.reset()
    made = model(name)
    compiled = torch.compile(made, fullgraph=True, backend="aot_eager")
    tokens = torch.randint(3, 61, (2, 12), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        want = made(input_ids=tokens, use_cache=False).logits
        cache = StaticCache(made.config, max_cache_len=16)
        made(input_ids=tokens[:, :8], past_key_values=cache)
        for at in range(8, 12):
            positions = torch.full((2, 1), at)
            got = compiled(input_ids=tokens[:, at : at + 1], position_ids=positions, past_key_values=cache).logits
            torch.testing.assert_close(got[:, 0], want[:, at], rtol=1e-4, atol=1e-5)


class Attend(torch.nn.Module):
    def forward(self, q, k, v):
        output, statistics = isentrope.attention(q, k, v, rule="logn(4)", causal=True, return_stats=("entropy",))
        return output, statistics.entropy


# Runs both in a process that has torch and the operators' library, and nothing else of ours.
ELSEWHERE = """
import sys, torch
library, exported, package, inputs, results = sys.argv[1:]
torch.ops.load_library(library)
q, k, v = torch.load(inputs)
found = [torch.export.load(exported).module()(q, k, v), torch._inductor.aoti_load_package(package)(q, k, v)]
assert not any(name.split(".")[0] == "isentrope" for name in sys.modules)
torch.save([[x.clone() for x in one] for one in found], results)
"""


def test_exported_calls_run_without_the_package(tmp_path):
    length = torch.export.Dim("length", min=2, max=64)
    example = tuple(torch.randn(2, 2, 8, 16) for _ in range(3))
    with torch.no_grad():
        exported = torch.export.export(Attend(), example, dynamic_shapes=[{2: length}] * 3)
    torch.export.save(exported, tmp_path / "call.pt2")
    package = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "package.pt2"))
    inputs = tuple(torch.randn(2, 2, 13, 16) for _ in range(3))
    torch.save(inputs, tmp_path / "inputs.pt")
    library = Path(isentrope.__path__[0]) / "libisentrope_operators.so"
    run = [sys.executable, "-c", ELSEWHERE, library, tmp_path / "call.pt2", package, tmp_path / "inputs.pt", tmp_path / "results.pt"]
    done = subprocess.run(run, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    for found in torch.load(tmp_path / "results.pt"):
        for got, want in zip(found, Attend()(*inputs), strict=True):
            torch.testing.assert_close(got, want)
