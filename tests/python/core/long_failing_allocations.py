"""Allocation failures: whichever allocation of an operator fails, it raises an error, and the next call is right."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LAYER = Path(shutil.which("isentrope") or "").parent / "libfailing_allocations.so"
CALLS = {
    "attention": "isentrope.attention(q, k, v, causal=True)",
    "statistics": "isentrope.attention(q, k, v, rule='logn(8)', sinks=torch.ones(4), return_stats=True)",
    "windows": "isentrope.attention(q, k, v, window_size=(9, 0), attn_mask=torch.ones(40, 40).bool())",
    "gradients": "differentiated(lambda *x: isentrope.attention(*x, rule='ssmax(s=[1,2,3,4])', soft_cap=3.0))",
    "rows": "isentrope.attention_rows(q, k, v, torch.full((2, 4, 40), 0.2))",
    "documents": "isentrope.varlen_attention(*(x.transpose(1, 2)[0] for x in (q, k, v)), starts, starts)",
    "decode": "isentrope.decode(q[:, :, :1], k, v, seqused_k=torch.tensor([9, 40]))",
    "quantize": "isentrope.quantize(k)",
    "lengths": "isentrope.row_lengths(q, k, causal=True)",
    "torch's": "isentrope.scaled_dot_product_attention(q, k, v, enable_gqa=True)",
    "merge": "isentrope.merge(state(k), state(v))",
    "rule": "isentrope.ScaleRule('logn(8)*yarn_mscale(factor=4)').to_json()",
}
PROGRAM = """
import ctypes, sys
import torch
import isentrope
layer = ctypes.CDLL(sys.argv[1])
assert layer.watch_allocations(b"libisentrope_operators")
torch.manual_seed(1)
q, k, v = torch.randn(2, 4, 40, 16), torch.randn(2, 2, 40, 16), torch.randn(2, 2, 40, 16)
starts = torch.tensor([0, 11, 40])

def differentiated(call):
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    return torch.autograd.grad(call(*leaves).square().sum(), leaves)

def flat(x):
    return [x] if isinstance(x, (str, torch.Tensor)) else [z for y in x for z in flat(y)]

def same(a, b):
    pairs = zip(flat(a), flat(b), strict=True)
    return all(torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y for x, y in pairs)

def state(keys):
    return isentrope.AttentionState(*isentrope.attention(q, keys, keys, return_stats=True))

def call():
    return {call}

want = call()  # what is made once and kept is there now
before = layer.allocations_met()
assert same(call(), want)
count = layer.allocations_met() - before
failed = 0
for which in range(0, count, max(1, count // 300)):
    layer.fail_allocation(ctypes.c_int64(which))
    try:
        got = call()
    except (MemoryError, RuntimeError, ValueError) as error:
        assert "alloc" in str(error) or "memory" in str(error) or isinstance(error, MemoryError), error
        failed += 1
    else:
        assert same(got, want), which
    layer.fail_allocation(ctypes.c_int64(-1))
    assert same(call(), want), which
print(count, failed)
"""


@pytest.mark.parametrize("call", CALLS)
def test_every_allocation_may_fail(call):
    environment = os.environ | {"LD_PRELOAD": str(LAYER), "OMP_NUM_THREADS": "2"}
    program = [sys.executable, "-W", "error", "-c", PROGRAM.replace("{call}", CALLS[call]), LAYER]
    process = subprocess.run(program, capture_output=True, text=True, env=environment)
    assert process.returncode == 0, process.stderr
    count, failed = map(int, process.stdout.split())
    assert count > 0 and failed >= min(count, 300) / 2, process.stdout
