"""Ranks wait for each other but not for a device. Tensors without data, which nobody can read, stand for a GPU's."""

import pytest
import torch
import torch.distributed as dist
from cases import tensors
from refusals import assert_refused

from isentrope import distributed
from isentrope.distributed.ring import ring_attention, ring_attention_backward

DOCUMENTS = torch.tensor([0, 2, 9, 9, 12])
MASKS = [
    {"causal": True, "documents": DOCUMENTS}, {"key_begin": torch.tensor([0, 3]), "key_end": torch.tensor([12, 9])},
    {"prefix_keys": torch.tensor([4, 1]), "causal": True},
]  # fmt: skip


@pytest.fixture
def alone(tmp_path):
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.FileStore(str(tmp_path / "store"), 1))
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: " ".join(mask))
@pytest.mark.parametrize("method", ["ring", "all_gather"])
def test_lists_on_the_cpu_make_nobody_wait(alone, monkeypatch, method, mask):
    """Both passes as called on the CPU, with everything but the lists on a device."""
    calls = []
    operator = ring_attention._opoverload
    monkeypatch.setattr("isentrope.distributed.functions.ring_attention", lambda *args: calls.append(args) or operator(*args))
    q, k, v = (x.detach() for x in tensors(12))
    sinks = torch.zeros(4)
    output, _ = distributed.attention(q, k, v, sinks=sinks, method=method, return_stats=True, **mask)
    (call,) = calls
    q, k, v, sinks, *lists, text, name = call
    there = [x.to("meta") for x in (q, k, v, sinks)]
    assert all(x is None or x.is_cpu for x in lists)
    results = ring_attention._init_fn(*there, *lists, text, name)
    assert results[0].is_meta and results[0].shape == output.shape
    gradients = ring_attention_backward._init_fn(*there, *lists, text, name, *results[:2], results[3], *results[:2])
    assert [x.shape for x in gradients] == [x.shape for x in there] and all(x.is_meta for x in gradients)


def test_what_stands_for_a_device_cannot_be_read(alone):
    q, k, v = (x.detach() for x in tensors(12))
    assert_refused("[Mm]eta", DOCUMENTS.to("meta").cpu, error=NotImplementedError)
    assert_refused("documents must be on cpu", distributed.attention, q, k, v, documents=DOCUMENTS.to("meta"))
