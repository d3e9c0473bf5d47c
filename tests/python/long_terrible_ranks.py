"""Functions over ranks and on GPUs with invalid values: refused by the argument's name, or successful."""

import os

import pytest
import tiny_model
import torch
import torch.distributed as dist
from long_terrible_values import ALSO, CU_Q, STATE, K, Q, masks_of, refusal, two_tests_of, wrong_answers
from long_terrible_values import CALLS as OF_ONE

import isentrope
import isentrope.gpu
import isentrope.hf
from isentrope import distributed
from isentrope._core.options import PartOptions

KEYS = torch.randn(2, 2, 5, 8)
ABSENT = ("key_begin", "key_end", "attn_mask")  # bias, custom masks and dropout are supported on one rank only
PARTS = {name: value for name, value in masks_of(PartOptions).items() if name not in ABSENT}
ENDS = {"key_begin": torch.tensor([0, 1]), "key_end": torch.tensor([5, 4])}
WAY = {"group": None, "method": "all_gather", "layout": "zigzag", "sequence_length": 5}


def spread(model, mesh, method, layout):
    llama = tiny_model.model("isentrope", num_hidden_layers=1) if model is None else model
    isentrope.hf.context_parallel(llama, mesh, method, layout)


CALLS = {
    "distributed.attention": (distributed.attention, {"q": Q, "k": KEYS, "v": KEYS} | WAY | PARTS | ENDS),
    "distributed.attention of documents": (
        distributed.attention,
        {"q": Q[:1], "k": KEYS[:1], "v": KEYS[:1], "causal": True, "documents": CU_Q, "method": "ring"},
    ),
    "distributed.decode": (
        distributed.decode,
        {"q": Q, "k": K, "v": K, "key_offset": 0, "sequence_keys": 7, "group": None, "return_stats": ("lse",),
         "rule": "logn(3)", "scale": 0.3, "sinks": torch.zeros(4)},
    ),
    "distributed.merge": (distributed.merge, {"state": STATE, "group": None}),
    "shard": (distributed.shard, {"tensor": Q, "dim": 2, "group": None, "layout": "zigzag"}),
    "gather": (distributed.gather, {"tensor": Q, "dim": 2, "group": None, "layout": "zigzag", "sequence_length": 5}),
    "context_parallel": (spread, {"mesh": None, "method": "ring", "layout": "zigzag", "model": None}),
}  # fmt: skip
TOGETHER = ALSO | {
    "documents": "documents|cu_seqlens_q", "sequence_length": "sequence_length|q|tensor|documents", "mesh": "group",
    "sequence_keys": "sequence_keys|query_offset",
    "q": "q|k|v|documents|key_begin|key_end|prefix_keys|sinks", "dim": "dim|tensor",
    "key_offset": "key_offset|sequence_keys",
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


test_what_is_right_works, test_what_is_terrible_is_refused_by_name_or_works = two_tests_of(CALLS, TOGETHER)


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the kernels take tensors on the CPU")
@pytest.mark.parametrize("function", isentrope.gpu.__all__)
def test_kernels_refuse_what_lies_elsewhere(function):
    """Kernels refuse tensors on other devices, and other types, like the functions of the same name."""
    call, right = getattr(isentrope.gpu, function), OF_ONE[function][1]
    assert "q must be on a CUDA or XPU device" in refusal(call, right)
    assert not list(wrong_answers(call, "q", TOGETHER, lambda: right))
