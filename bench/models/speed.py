#!/usr/bin/env python3
"""Times models whose attention is computed by their engine and by isentrope, in turns.

    speed.py RECORD ENGINE [--only WORDS...] [--rounds 3]     # ENGINE: transformers or vllm

The model has the shape of SmolLM2-135M and random weights; under vLLM a tenth of its layers and of its vocabulary, so that
64 requests take a minute. A row of RECORD is saved when it is measured and not measured again: a run that was stopped continues.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from isentrope.commands.doctor import processor_name

sys.path.append(str(Path(__file__).parents[2]))
from bench.harness import record_of, timed
from scripts.json_rows import write_rows

THREADS = 2
SHAPE = dict(
    vocab_size=49152, hidden_size=576, intermediate_size=1536, num_attention_heads=9, num_key_value_heads=3, num_hidden_layers=30,
    max_position_embeddings=8320, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
TENTH = dict(num_hidden_layers=3, vocab_size=4915)
METHODS = ("forward", "do_kv_cache_update")


def ids(tokens):
    return torch.randint(3, TENTH["vocab_size"], (1, tokens), generator=torch.Generator().manual_seed(0))


def prompt(model, tokens):
    def run():
        with torch.inference_mode():
            model(ids(tokens), use_cache=True, logits_to_keep=1)

    return tokens, run


def decode(model, context, tokens=8):
    with torch.inference_mode():
        cache = model(ids(context), use_cache=True, logits_to_keep=1).past_key_values

    def run():
        with torch.inference_mode():
            for _ in range(tokens):
                model(ids(1), past_key_values=cache)
        cache.crop(-tokens)

    return tokens, run


def training(model, tokens):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def run():
        model(ids(tokens), labels=ids(tokens), use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return tokens, run


TRANSFORMERS = {
    "prompt of 512": (prompt, 512), "prompt of 2048": (prompt, 2048), "prompt of 8192": (prompt, 8192), "decode after 2048": (decode, 2048),
    "training step of 2048": (training, 2048),
}  # fmt: skip


def in_transformers(dtype):
    """Yields each work, its number of tokens and a run for each system."""
    import isentrope.hf  # noqa: F401

    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SHAPE)).to(dtype)

    def under(system, run):
        model.set_attn_implementation(system)
        run()

    for work, (make, size) in TRANSFORMERS.items():

        def prepare(make=make, size=size):
            tokens, run = make(model, size)
            return tokens, {system: lambda system=system: under(system, run) for system in ("sdpa", "isentrope")}

        yield work, prepare


VLLM = {"64 requests of 1 to 3000, 48 new": (64, (1, 3000), 48), "2 requests of 8192, 48 new": (2, (8192, 8192), 48)}


def in_vllm(dtype):
    """As in_transformers. One engine serves all systems: its layers' methods are exchanged between whole runs."""
    os.environ |= {"ISENTROPE_VLLM": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "2", "HF_HUB_OFFLINE": "1"}
    from vllm import LLM, SamplingParams

    import isentrope.vllm
    from isentrope.vllm.plugin import register

    register()
    from isentrope.vllm.backend import Attention, CPUAttention, CPUAttentionBackendImpl

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        LlamaForCausalLM(LlamaConfig(**SHAPE | TENTH)).to(dtype).save_pretrained(folder)
        llm = LLM(folder, skip_tokenizer_init=True, dtype=dtype, enforce_eager=True, max_model_len=8320, enable_prefix_caching=False)

    def under(system, prompts, new):
        for name in METHODS:
            setattr(CPUAttention, name, getattr(CPUAttentionBackendImpl if system == "vLLM" else Attention, name))
        isentrope.vllm.record(llm, system.endswith("recorded"))
        llm.generate(prompts, SamplingParams(temperature=0, max_tokens=new, ignore_eos=True, detokenize=False), use_tqdm=False)
        isentrope.vllm.statistics(llm)

    for work, (count, lengths, new) in VLLM.items():

        def prepare(count=count, lengths=lengths, new=new):
            draw = random.Random(0)
            prompts = [{"prompt_token_ids": ids(draw.randint(*lengths))[0].tolist()} for _ in range(count)]
            systems = ("vLLM", "isentrope", "isentrope, recorded")
            return sum(len(x["prompt_token_ids"]) + new for x in prompts), {s: lambda s=s: under(s, prompts, new) for s in systems}

        yield work, prepare


def seconds_of(run):
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin, None


def measure(prepare, rounds):
    """Returns the tokens of a run and, for each system, the seconds of every round and their median."""
    tokens, runs = prepare()
    for run in runs.values():
        if seconds_of(run)[0] > 10:  # long runs need no call before
            break
    return {"tokens": tokens, "systems": timed(runs, rounds, lambda name: seconds_of(runs[name]), lambda name, output: {})}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("engine", choices=("transformers", "vllm"))
    parser.add_argument("--only", nargs="+", default=[""], help="works whose names contain one of these words")
    parser.add_argument("--types", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    record = record_of(options.record, {"kind": "models", "machine": processor_name(), "threads": THREADS})
    for dtype in options.types:
        for work, prepare in {"transformers": in_transformers, "vllm": in_vllm}[options.engine](getattr(torch, dtype)):
            key = {"engine": options.engine, "work": work, "dtype": dtype}
            measured = any(key.items() <= row.items() for row in record["rows"])
            if measured or not any(word in work for word in options.only):
                continue
            row = key | measure(prepare, options.rounds)
            record["rows"].append(row)
            write_rows(options.record, record, 2)
            print(work, dtype, *(f"{x['name']} {row['tokens'] / x['seconds']:.1f}/s" for x in row["systems"]), flush=True)


if __name__ == "__main__":
    main()
