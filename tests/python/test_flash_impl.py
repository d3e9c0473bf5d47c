"""Isentrope in torch's registry of flash attention implementations, where it replaces functions on GPUs only.

No GPU is needed: the dispatcher's table is read. `isentrope.sdpa.gpu` has its own tests of results on a GPU.
"""

import pytest
import torch
from torch.nn import attention

import isentrope

if not hasattr(attention, "register_flash_attention_impl"):
    pytest.skip("this torch has no registry of implementations", allow_module_level=True)


def registered_here(key):
    table = torch._C._dispatch_dump_table("aten::scaled_dot_product_attention")
    (line,) = [line for line in table.splitlines() if line.startswith(f"{key}:")]
    return "isentrope/sdpa/flash.py" in line


@pytest.fixture
def restored():
    yield
    attention.restore_flash_attention_impl(_raise_warn=False)
    isentrope.sdpa.set_flash_rule()


def test_activation_replaces_the_function_on_gpus_until_it_is_restored(restored):
    assert "ISENTROPE" in attention.list_flash_attention_impls() and attention.current_flash_attention_impl() is None
    q = torch.randn(1, 2, 9, 16)
    want = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    assert not registered_here("CUDA") and not registered_here("AutogradCUDA")
    attention.activate_flash_attention_impl("ISENTROPE")
    assert attention.current_flash_attention_impl() == "ISENTROPE"
    assert registered_here("CUDA") and registered_here("AutogradCUDA") and not registered_here("CPU")
    assert torch.equal(torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True), want)
    attention.activate_flash_attention_impl("ISENTROPE")  # a second time replaces the first
    attention.restore_flash_attention_impl()
    assert not registered_here("CUDA") and attention.current_flash_attention_impl() is None


def test_the_rule_is_set_beforehand(restored):
    isentrope.sdpa.set_flash_rule("logn(train_len=512)")
    with pytest.raises(ValueError, match="rule"):
        isentrope.sdpa.set_flash_rule("no_rule")
    attention.activate_flash_attention_impl("ISENTROPE")


def test_two_ways_at_once_are_refused(restored):
    with isentrope.sdpa.activate(), pytest.raises(RuntimeError, match="must not be active"):
        attention.activate_flash_attention_impl("ISENTROPE")
    assert attention.current_flash_attention_impl() is None
