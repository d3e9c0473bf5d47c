"""Two minutes, or ISENTROPE_SOAK_SECONDS, of random calls of every function from eight threads, with changing numbers
of torch's threads, and forks in between. Results equal their first, compared with the definition; memory does not grow.
"""

import gc
import os
import random
import resource
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
from dense import dense

import isentrope

SECONDS = float(os.environ.get("ISENTROPE_SOAK_SECONDS", 120))
THREADS, MORE_MEMORY = 8, 3 << 30
# Error of a result against the definition in float64.
ROUNDING = {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3, torch.float64: 1e-9}
OPTIONS = (
    {}, {"causal": True, "rule": "logn(8)"}, {"window_size": (9, 2), "rule": "ssmax(s=0.3,b=0.2)"}, {"soft_cap": 3.0},
    {"causal": True, "sinks": torch.tensor([0.5, -1.0, 0.0, 2.0])},
    {"causal": True, "window_size": (12, 0), "dilation": 3}, {"chunk_size": 16},
    {"dropout_p": 0.25, "dropout_seed": 7}, {"causal": True, "prefix_keys": torch.tensor([3, 30])},
)  # fmt: skip


def wide(x):
    return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def tensors(dtype, seed, queries=40, keys=53, grad=False):
    generator = torch.Generator().manual_seed(seed)
    shapes = (2, 4, queries, 16), (2, 2, keys, 16), (2, 2, keys, 24)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(grad) for shape in shapes]


def with_statistics(q, k, v, options, call=isentrope.attention):
    options = {name: x.to(q.dtype) if name == "sinks" else x for name, x in options.items()}
    output, statistics = call(q, k, v, **options) if call is dense else call(q, k, v, return_stats=True, **options)
    return output, statistics.lse, statistics.entropy


def gradients(q, k, v, options, call=isentrope.attention):
    output, lse, entropy = with_statistics(q, k, v, options, call)
    loss = output.square().sum() + entropy.sum() + lse.sum()
    return torch.autograd.grad(loss.double(), (q, k, v))


def forward_of(dtype, seed, options):
    q, k, v = tensors(dtype, seed)
    return (lambda: with_statistics(q, k, v, options)), lambda: with_statistics(*map(wide, (q, k, v)), options, dense)


def backward_of(dtype, seed, options):
    q, k, v = tensors(dtype, seed, grad=True)
    exact = [wide(x.detach()).requires_grad_() for x in (q, k, v)]
    return (lambda: gradients(q, k, v, options)), lambda: gradients(*exact, options, dense)


def rows_of(dtype, seed, options):
    q, k, v = tensors(dtype, seed)
    scale = torch.linspace(0.1, 0.4, 2 * 4 * 40).reshape(2, 4, 40)
    definition = lambda: (dense(*map(wide, (q, k, v)), lambda_=scale.double())[0],)  # noqa: E731
    return (lambda: (isentrope.attention_rows(q, k, v, scale),)), definition


def documents_of(dtype, seed, options):
    q, k, v = (x.transpose(1, 2)[0].contiguous() for x in tensors(dtype, seed, keys=40))
    starts = torch.tensor([0, 11, 11, 40])

    def definition():
        parts = [[wide(x[a:b]).transpose(0, 1)[None] for x in (q, k, v)] for a, b in ((0, 11), (11, 40))]
        return (torch.cat([dense(*part, rule="logn(8)")[0][0].transpose(0, 1) for part in parts]),)

    return (lambda: (isentrope.varlen_attention(q, k, v, starts, starts, rule="logn(8)"),)), definition


def decode_of(dtype, seed, options):
    q, k, v = tensors(dtype, seed, queries=1)
    padded = [torch.nn.functional.pad(x, (0, 0, 0, 3)) for x in (k, v)]
    pages = [x.reshape(2, 2, 7, 8, -1).transpose(1, 2).flatten(0, 1) for x in padded]
    table, used = torch.arange(14).reshape(2, 7), torch.tensor([53, 53])
    definition = lambda: (dense(*map(wide, (q, k, v)), rule="logn(8)")[0],)  # noqa: E731
    return (lambda: (isentrope.decode(q, *pages, table, used, rule="logn(8)"),)), definition


def merged_of(dtype, seed, options):
    q, k, v = tensors(dtype, seed)

    def call():
        parts = [(k[:, :, keys], v[:, :, keys]) for keys in (slice(20), slice(20, None))]
        states = [isentrope.AttentionState(*isentrope.attention(q, *part, return_stats=True)) for part in parts]
        whole = isentrope.merge(*states)
        return whole.output, whole.statistics.lse, whole.statistics.entropy

    return call, lambda: with_statistics(*map(wide, (q, k, v)), {}, dense)


def torchs_of(dtype, seed, options):
    q, k, v = tensors(dtype, seed)
    call = lambda: (isentrope.scaled_dot_product_attention(q, k, v, enable_gqa=True),)  # noqa: E731
    return call, lambda: (dense(*map(wide, (q, k, v)))[0],)


class Case:
    def __init__(self, kind, dtype, seed, options):
        self.name = f"{kind.__name__} {dtype} {options}"
        self.in_children = kind is not backward_of  # autograd does not work in a child
        self.call, definition = kind(dtype, seed, options)
        self.want = self.call()
        for got, exact in zip(self.want, definition()):
            largest = max(1.0, exact[exact.isfinite()].abs().max().item())
            error = (got.double() - exact).nan_to_num(posinf=0, neginf=0).abs().max().item()
            assert error <= ROUNDING[dtype] * largest, (self.name, error / largest)

    def is_right(self):
        return all(torch.equal(got, want) for got, want in zip(self.call(), self.want))


def cases():
    kinds = (forward_of, backward_of, rows_of, documents_of, decode_of, merged_of, torchs_of)
    for dtype in ROUNDING:
        for kind in kinds:
            for seed, options in enumerate(OPTIONS if kind in (forward_of, backward_of) else OPTIONS[:1]):
                yield Case(kind, dtype, seed, options)


def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def child_is_right(some):
    """Computes in a child while its parent's threads do; on one thread, because torch's pool does not fork."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(600)  # ends a child that hangs
            torch.set_num_threads(1)
            with torch.no_grad():
                status = not all(case.is_right() for case in some)
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*float64 is computed by the reference")
def test_every_result_is_right_and_memory_stays_flat():
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MORE_MEMORY, before[1]))
    everything = list(cases())
    wrong, calls, over = [], [0] * THREADS, threading.Event()

    def work(number):
        draw = random.Random(number)
        while not over.is_set():
            if draw.random() < 0.05:
                torch.set_num_threads(draw.randint(1, 4))
            case = draw.choice(everything)
            try:
                right = case.is_right()
            except Exception as error:  # any error is reported
                right, case.name = False, f"{case.name}: {error!r}"
            if not right:
                wrong.append(case.name)
                over.set()
            calls[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    draw, began, warm, forks = random.Random(99), time.monotonic(), 0, 0
    some = [case for case in everything if case.in_children]
    try:
        while (share := (time.monotonic() - began) / SECONDS) < 1 and not over.is_set():
            if not child_is_right(draw.sample(some, 5)):
                wrong.append(f"child {forks}")
                break
            forks += 1
            over.wait(0.5)
            if not warm and share > 0.3:
                warm = resident()
        end = resident()
    finally:
        over.set()
        for thread in threads:
            thread.join()
        resource.setrlimit(resource.RLIMIT_AS, before)
    print(f"{sum(calls)} calls, {forks} forks; {warm / 1e6:.1f} MB after a third, {end / 1e6:.1f} MB at the end")
    assert not wrong
    assert end < 1.05 * warm
