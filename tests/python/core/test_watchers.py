"""Eager calls bypass autograd, but are seen by observers of torch's dispatcher, and block no other thread."""

import threading
import time

import pytest
import torch
from dispatched import Dispatched
from torch._subclasses import FakeTensorMode
from torch.overrides import TorchFunctionMode

import isentrope

FORWARD, BACKWARD = "isentrope::attention", "isentrope::attention_backward"


def call():
    q, k, v = (torch.randn(1, 2, 3, 4, requires_grad=True) for _ in range(3))
    isentrope.attention(q, k, v).sum().backward()
    with torch.no_grad():
        return isentrope.attention(q, k, v)


def profiled():
    with torch.profiler.profile() as profile:
        call()
    return [event.name for event in profile.events()]


def dispatched():
    with Dispatched() as calls:
        call()
    return [function.name() for function in calls.functions]


@pytest.mark.parametrize("seen", [profiled, dispatched])
def test_every_operator_is_seen(seen):
    names = seen()
    assert names.count(FORWARD) == 2
    assert names.count(BACKWARD) == 1


def test_a_function_mode_sees_the_operator():
    names = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            names.append(str(function))
            return function(*args, **(kwargs or {}))

    with Mode(), torch.no_grad():
        isentrope.attention(*(torch.randn(1, 2, 3, 4) for _ in range(3)))
    assert "isentrope.attention.default" in names


def test_a_trace_holds_the_operator():
    q = torch.randn(1, 2, 3, 4)
    with torch.no_grad():
        traced = torch.jit.trace(lambda x: isentrope.attention(x, x, x), q, check_trace=False)
        assert FORWARD in str(traced.graph)
        other = torch.randn_like(q)
        torch.testing.assert_close(traced(other), isentrope.attention(other, other, other))


def test_what_was_traced_without_gradients_has_them():
    from torch.fx.experimental.proxy_tensor import make_fx

    q = torch.randn(1, 2, 3, 4)
    graph = make_fx(lambda x: isentrope.attention(x, x, x))(q)
    (ours,) = torch.autograd.grad(graph(q.requires_grad_()).sum(), q)
    (theirs,) = torch.autograd.grad(isentrope.attention(q, q, q).sum(), q)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_tensors_without_memory_reach_no_kernel_outside_their_mode_either(at):
    tensors = [torch.randn(1, 2, 3, 4) for _ in range(3)]
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(x) for x in tensors]
    assert isentrope.attention(*fake).shape == (1, 2, 3, 4)
    assert isinstance(isentrope.attention(*fake), torch._subclasses.FakeTensor)
    tensors[at] = fake[at]
    with pytest.raises(Exception, match="FakeTensor"):
        isentrope.attention(*tensors)


def test_what_is_negated_lazily_is_negated():
    q = torch.randn(1, 2, 3, 4)
    negated = torch._neg_view(q)
    assert negated.is_neg()
    assert torch.equal(isentrope.attention(negated, q, q), isentrope.attention(-q, q, q))
    assert torch.equal(isentrope.attention(q, q, negated), -isentrope.attention(q, q, q))


def test_gradients_that_are_negated_lazily_or_zero_without_memory():
    q, k, v = (torch.randn(1, 2, 3, 4, requires_grad=True) for _ in range(3))
    upstream = torch.randn(1, 2, 3, 4)

    def gradients(upstream):
        return torch.autograd.grad(isentrope.attention(q, k, v), (q, k, v), upstream)

    assert all(map(torch.equal, gradients(torch._neg_view(upstream)), gradients(-upstream)))
    for gradient in gradients(torch._efficientzerotensor(1, 2, 3, 4)):
        assert torch.equal(gradient, torch.zeros(1, 2, 3, 4))


def test_gradients_of_a_batch_of_gradients():
    q, k, v = (torch.randn(1, 2, 3, 4, requires_grad=True) for _ in range(3))
    upstream = torch.randn(5, 1, 2, 3, 4)
    output = isentrope.attention(q, k, v)
    together = torch.autograd.grad(output, (q, k, v), upstream, retain_graph=True, is_grads_batched=True)
    for index, one in enumerate(upstream):
        for all_of_them, alone in zip(together, torch.autograd.grad(output, (q, k, v), one, retain_graph=True)):
            torch.testing.assert_close(all_of_them[index], alone)


def test_other_threads_go_on_meanwhile():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    q = torch.randn(1, 4, 4096, 64)
    ticks, ended = [], threading.Event()

    def tick():
        while not ended.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    other = threading.Thread(target=tick)
    other.start()
    try:
        begin = time.perf_counter()
        isentrope.attention(q, q, q)
        end = time.perf_counter()
    finally:
        ended.set()
        other.join()
        torch.set_num_threads(threads)
    # Threads that woke up before or after the call do not count.
    assert sum(begin < tick < end for tick in ticks) > 3
