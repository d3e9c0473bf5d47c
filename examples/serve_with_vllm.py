"""Prints the entropy of every token of a request: serve_with_vllm.py MODEL"""

import os
import sys

if len(sys.argv) != 2:
    sys.exit(__doc__)
os.environ["ISENTROPE_VLLM"] = "1"  # before vllm starts

import vllm

import isentrope.vllm

llm = vllm.LLM(sys.argv[1])
isentrope.vllm.record(llm)
(output,) = llm.generate(["In the beginning"])
found = isentrope.vllm.statistics(llm)[output.request_id]
# entropy is [tokens, layers], in nats: one number for each token
print(found.entropy.mean(1))
