"""Clients of what keys receive: their own reference of weights, against `isentrope.received` and `isentrope.weights_at`.

keys-vals drops entries of caches, kvpress prunes prompts, lm-polygraph scores hallucinations; all three need attention
weights, and so eager attention or kernels of their own. kvpress excludes the transformers that `isentrope.hf` needs, so
it has an environment of its own, where its press calls the operator itself.
"""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
import sysconfig
import types
from collections.abc import Iterator
from pathlib import Path

import torch

import isentrope
from case import Case, installed, tiny_llama, without_init

PACKAGES = ("keys_vals==0.2.0", "lm_polygraph==0.7.0")
TITLE = "weights of keys in keys-vals 0.2.0, kvpress 0.5.5, lm-polygraph 0.7.0"
KVPRESS = ("kvpress==0.5.5", "transformers==5.2.0")


def cases(folder: Path) -> Iterator[Case]:
    installed(folder, *PACKAGES)
    for shuffled in (False, True):
        yield Case(f"keys-vals {'shuffled' if shuffled else 'ordered'}", functools.partial(check_keys_vals, folder, shuffled))
    yield Case("lm-polygraph RAUQ", functools.partial(check_rauq, folder))
    for name in ("same indices", "under AdaKV"):
        yield Case(f"kvpress {name}", functools.partial(check_kvpress, folder, name))


def check_keys_vals(folder: Path, shuffled: bool) -> None:
    """A chunk of 128 queries against a cache of 4,096 keys, whose slots are in any order; 8 heads share 2 key heads."""
    without_init(folder / "packages", "keys_values", "keys_values.attention", "keys_values.kvcache")
    # Its utilities import the tokenizer of litgpt, which needs lightning, for a type annotation.
    sys.modules.setdefault("litgpt.tokenizer", types.SimpleNamespace(Tokenizer=None))
    weights_of = importlib.import_module("keys_values.attention.attention_utils").sdpa_attention_weights
    torch.manual_seed(0)
    queries, keys, kv_heads, group = 128, 4096, 2, 4
    q, k = torch.randn(1, kv_heads * group, queries, 64), torch.randn(1, kv_heads, keys, 64)
    order = torch.stack([torch.randperm(keys) if shuffled else torch.arange(keys) for _ in range(kv_heads)])[None]
    weights = weights_of(
        query=q, key=k, tmp_array=torch.empty(1, kv_heads * group, queries, keys), token_positions=order,
        input_pos=keys - queries, scale_factor=0.125, sliding_window_size=None,
    )  # fmt: skip
    want = weights.view(1, kv_heads, group, queries, keys).mean(2).sum(2)
    position = torch.arange(keys - queries, keys)
    seen = (order[:, :, None] <= position[:, None]).repeat_interleave(group, 1)
    lse = isentrope.attention(q, k, k, attn_mask=seen, return_stats=("lse",))[1].lse
    got = isentrope.received(q, k, lse, heads="key", attn_mask=seen)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def check_rauq(folder: Path) -> None:
    """RAUQ's scores from the weights of each token's predecessor alone, against those from whole matrices."""
    import isentrope.hf

    without_init(folder / "packages", "lm_polygraph", "lm_polygraph.estimators", "lm_polygraph.utils")
    estimator = importlib.import_module("lm_polygraph.estimators.rauq").RAUQ(n_layers=4, n_heads=4)
    model = tiny_llama(layers=4)
    tokens = torch.randint(1, 61, (1, 40), generator=torch.Generator().manual_seed(1))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        out = model(tokens, output_attentions=True)
    likelihoods = out.logits.log_softmax(-1)[0, :-1].gather(1, tokens[0, 1:, None])[:, 0].numpy()
    whole = torch.cat([x[0] for x in out.attentions]).numpy()
    previous = torch.arange(-1, tokens.shape[1] - 1)[:, None]
    diagonals = []

    def hear(record, query, key, options):
        options = {name: value for name, value in options.items() if name != "dropout_p"}
        lse = isentrope.attention(query, key, key, causal=True, return_stats=("lse",), **options)[1].lse
        weights = isentrope.weights_at(query, key, lse, previous, causal=True, **options)[0, :, 1:, 0]
        diagonals.append(torch.diag_embed(weights, offset=-1))

    model.set_attn_implementation("isentrope")
    with torch.no_grad(), isentrope.hf.recording.observing(hear):
        model(tokens)
    stats = {"greedy_log_likelihoods": [likelihoods]}
    want = estimator(stats | {"attention_all": [whole]})
    got = estimator(stats | {"attention_all": [torch.cat(diagonals).numpy()]})
    torch.testing.assert_close(torch.tensor(got), torch.tensor(want), rtol=0, atol=1e-4)


def check_kvpress(folder: Path, name: str) -> None:
    """Runs kvpress_case.py in an environment that has the packages of KVPRESS before those of this one."""
    environment = folder / "kvpress"
    python = environment / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        site = sysconfig.get_path("purelib", vars={"base": str(environment)})
        (Path(site) / "of_the_project.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, KVPRESS[1]], check=True)
        subprocess.run([*pip, "--no-deps", KVPRESS[0]], check=True)
    program = [python, Path(__file__).with_name("kvpress_case.py"), name]
    done = subprocess.run(program, env=os.environ, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "failed without a message")
