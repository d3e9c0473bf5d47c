"""Numbers that change from call to call, in compiled functions."""

import torch
from torch._dynamo.testing import CompileCounter

import isentrope


def test_a_changing_scale_is_not_compiled_for_each_value():
    counter = CompileCounter()
    q = torch.randn(1, 2, 8, 16, requires_grad=True)
    attend = torch.compile(lambda q, scale: isentrope.attention(q, q, q, scale=scale), backend=counter, fullgraph=True)
    for scale in (0.5, 0.6, 0.7, 0.8, 0.9):
        want = isentrope.attention(q, q, q, scale=scale)
        got = attend(q, scale)
        torch.testing.assert_close(got, want)
        gradients = [torch.autograd.grad(x.square().sum(), q)[0] for x in (got, want)]
        torch.testing.assert_close(*gradients)
    # Once for the first value, which might have been a constant, and once for all others.
    assert counter.frame_count == 2
