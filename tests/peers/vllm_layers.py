"""Judges the layers of isentrope.vllm by dense attention in float64: those of CPUs, and those of GPUs in Triton's interpreter.

Keys and values are written to vLLM's caches by slot; decode steps, a chunk of a prompt and a whole prompt are one call.
"""

import os
import sys
from types import SimpleNamespace

os.environ["TRITON_INTERPRET"] = "1"

import torch
from transformers import LlamaConfig
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.backends import cpu_attn

from isentrope.vllm import backend

HEADS, KV_HEADS, DIM, PAGE = 4, 2, 32, 16
STARTS, USED = [0, 1, 10, 42], [40, 33, 32]
CASES = [
    {}, {"sliding_window": 8}, {"logits_soft_cap": 2.0}, {"alibi_slopes": [0.5, 0.25, 0.1, 0.05]}, {"sinks": torch.ones(HEADS)},
    {"attn_type": AttentionType.ENCODER_DECODER},
]  # fmt: skip


def dense(q, k, v, causal, sliding_window=None, logits_soft_cap=None, alibi_slopes=None, sinks=None, attn_type=None):
    """Returns attention of one request, [tokens, heads, dim]; its queries are the last of its keys."""
    q, k, v = (x.double().transpose(0, 1) for x in (q, *(x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))))
    logits = q @ k.transpose(1, 2) * DIM**-0.5
    if logits_soft_cap:
        logits = logits_soft_cap * torch.tanh(logits / logits_soft_cap)
    distance = torch.arange(k.shape[1]) - (torch.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1])
    if alibi_slopes:
        logits = logits + torch.tensor(alibi_slopes)[:, None, None] * distance
    hidden = (distance > 0) & causal | (distance <= -(sliding_window or 1 << 30))
    logits = torch.cat([logits.masked_fill(hidden, -torch.inf), torch.full((HEADS, q.shape[1], 1), -torch.inf)], 2)
    if sinks is not None:
        logits[:, :, -1] = sinks[:, None]
    return (torch.softmax(logits, 2)[:, :, :-1] @ v).transpose(0, 1)


def error(kind, options):
    torch.manual_seed(0)
    impl = kind(HEADS, DIM, DIM**-0.5, KV_HEADS, **{"alibi_slopes": None, "sliding_window": None, "kv_cache_dtype": "auto"} | options)
    table = torch.randperm(12)[:9].view(3, 3)
    cache, q = torch.zeros(12, KV_HEADS, PAGE, 2 * DIM), torch.randn(STARTS[-1], HEADS, DIM)
    parts = [torch.randn(2, used, KV_HEADS, DIM) for used in USED]
    slots = torch.cat([(pages[:, None] * PAGE + torch.arange(PAGE)).flatten()[:used] for pages, used in zip(table, USED)])
    impl.do_kv_cache_update(None, *torch.cat(parts, 1), cache, slots)
    causal = "attn_type" not in options
    metadata = SimpleNamespace(
        num_actual_tokens=STARTS[-1], query_start_loc=torch.tensor(STARTS).int(), seq_lens=torch.tensor(USED).int(), max_seq_len=max(USED),
        block_table=table.int(), causal=causal,
    )  # fmt: skip
    got = impl.forward(None, q, q, q, cache, metadata, torch.empty(STARTS[-1], HEADS * DIM)).view(-1, HEADS, DIM)
    want = torch.cat([dense(q[a:b], *part, causal, **options) for a, b, part in zip(STARTS, STARTS[1:], parts)])
    return float((got - want).abs().max())


if __name__ == "__main__":
    config = SimpleNamespace(model_config=SimpleNamespace(hf_config=LlamaConfig(), dtype=torch.float32))
    backend.get_current_vllm_config = cpu_attn.get_current_vllm_config = lambda: config
    wrong = False
    for kind in (backend.CPUAttention, backend.GPUAttention):
        if kind is backend.GPUAttention:  # from this import on, kernels in Triton compute for CPUs
            from isentrope.gpu.interpreter import speed_up

            speed_up()
        for options in CASES:
            wrong |= (found := error(kind, options)) > 1e-5
            print(f"{kind.__name__} {options}: {found:.1e}")
    sys.exit(wrong)
