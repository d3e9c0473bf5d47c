"""vLLM on this operator: its attention of CPUs, a rule for any model, and the statistics of requests.

With ISENTROPE_VLLM=1 in the environment, vLLM's CPU platform computes attention by isentrope: bfloat16, float16 and float32,
grouped heads, windows, soft-caps, ALiBi, sinks, encoders, cross attention, chunked prefill and prefix caching. Without the
variable nothing changes. ISENTROPE_RULE, as in `logn(train_len=4096)`, is a rule whose n is the number of keys that a token
of its request sees.

    llm = vllm.LLM(...)
    isentrope.vllm.record(llm)
    outputs = llm.generate(prompts)
    found = isentrope.vllm.statistics(llm)[outputs[0].request_id]
    found.entropy  # [tokens, layers], in nats
"""

from __future__ import annotations

from isentrope.vllm.statistics import RequestStatistics, record, statistics

__all__ = ["RequestStatistics", "record", "statistics"]
