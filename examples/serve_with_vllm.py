"""Prints the entropy of every token of a request: serve_with_vllm.py MODEL"""

import os
import sys

os.environ["ISENTROPE_VLLM"] = "1"  # before vllm starts

import vllm

import isentrope.vllm


def main(model):
    llm = vllm.LLM(model)
    isentrope.vllm.record(llm)
    (output,) = llm.generate(["In the beginning"])
    found = isentrope.vllm.statistics(llm)[output.request_id]
    # entropy is [tokens, layers], in nats: one number for each token
    print(found.entropy.mean(1))


if __name__ == "__main__":  # vLLM's processes import this file too
    main(*sys.argv[1:])
