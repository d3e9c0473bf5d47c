"""The kernel of the weight that keys receive, compiled for chips that are not here."""

import pytest
import torch

from isentrope._core.call import call_of
from isentrope.gpu.launch_received import received, weights_at_paged
from src.gpu.compiling import TARGETS, compiled, launches


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("chip", [x if x == "sm_90" else pytest.param(x, marks=pytest.mark.long) for x in TARGETS])
def test_compiles(chip, masked):
    target = TARGETS[chip]
    q, k = (torch.empty(1024, 128, dtype=torch.bfloat16).expand(4, heads, 1024, 128) for heads in (32, 8))
    masks = {"attn_mask": torch.empty(1024, 1024, dtype=torch.bool).expand(4, 32, 1024, 1024)} if masked else {}
    call = call_of(q, k, k, causal=True, sinks=torch.empty(32), **masks)
    with launches(target) as recorded:
        received(*call, torch.empty(4, 32, 1024), None)
    (one,) = (one for one in recorded if one.name == "received")
    kernel = compiled(one, target)
    assert kernel.spilled == 0 and kernel.shared <= target.shared and kernel.products


def test_weights_of_chosen_keys_compile():
    q, k = (torch.empty(rows, 128, dtype=torch.bfloat16).expand(count, heads, rows, 128) for count, heads, rows in ((4, 32, 8), (64, 8, 16)))
    pages, used = torch.zeros(4, 16, dtype=torch.int32), torch.full((4,), 256)
    with launches(TARGETS["sm_90"]) as recorded:
        weights_at_paged(*call_of(q, k, k, causal=True), torch.empty(4, 32, 8), torch.zeros(4, 32, 8, 5, dtype=torch.int64), None, pages, used, None)
    (one,) = (one for one in recorded if one.name == "weights_at")
    assert compiled(one, TARGETS["sm_90"]).spilled == 0
