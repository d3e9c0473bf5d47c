"""The front doors with tensors of a GPU, as far as a machine without one can follow: fakes of them have shapes alone."""

import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import isentrope
from isentrope.gpu import launch, plan


def gpu(*shape, **options):
    return torch.empty(shape, device="cuda", **options)


def test_results_lie_where_q_does():
    with FakeTensorMode():
        q, k = gpu(1, 4, 8, 16, dtype=torch.bfloat16), gpu(1, 2, 8, 16, dtype=torch.bfloat16)
        output, statistics = isentrope.attention(q, k, k, return_stats=True)
        assert output.shape == q.shape and output.dtype == q.dtype
        assert all(x.device == output.device == q.device for x in statistics)


def test_tensors_on_several_devices_are_an_error():
    with FakeTensorMode():
        q, k = gpu(1, 2, 8, 16), torch.empty(1, 2, 8, 16)
        with pytest.raises(ValueError, match="k must lie on cuda:0, as q does; got cpu"):
            isentrope.attention(q, k, q)
        with pytest.raises(ValueError, match="attn_mask must lie on cuda:0, as q does; got cpu"):
            isentrope.attention(q, q, q, attn_mask=torch.ones(8, 8, dtype=torch.bool))


def test_the_operators_have_an_implementation_for_gpus():
    for name in ("attention", "attention_backward", "decode", "row_lengths"):
        for key in ("CUDA", "XPU"):
            assert torch._C._dispatch_has_kernel_for_dispatch_key(f"isentrope::{name}", key)


def test_importing_the_package_loads_no_triton():
    code = "import sys, isentrope; sys.exit('triton' in sys.modules or 'isentrope.gpu' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_triton_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "isentrope.gpu.operators", None)
    monkeypatch.setitem(sys.modules, "triton", None)
    from isentrope._operators import _on_device

    with pytest.raises(ModuleNotFoundError):
        _on_device("attention")()


def test_tensors_on_the_cpu_need_the_interpreter(monkeypatch):
    x = torch.zeros(1, 1, 4, 16)
    monkeypatch.setattr(isentrope.gpu, "_INTERPRETED", type("No", (), {"value": False}))
    for function, arguments in (("attention", (x, x, x)), ("decode", (x, x, x, None, None))):
        with pytest.raises(ValueError, match=rf"\[{function}\] q must lie on a CUDA or XPU device, or TRITON_INTERPRET=1"):
            getattr(isentrope.gpu, function)(*arguments)


def test_a_head_dimension_over_the_limit_is_an_error():
    x = torch.zeros(1, 1, 4, 257)
    with pytest.raises(ValueError, match="q must have a head dimension of at most 256 on this device; got 257"):
        isentrope.gpu.attention(x, x, x)


def test_a_device_too_old_is_an_error(monkeypatch):
    old = type("Old", (), {"major": 7, "minor": 5, "name": "T4", "multi_processor_count": 40})
    monkeypatch.setattr(plan, "INTERPRETED", type("No", (), {"value": False}))
    monkeypatch.setattr(torch, "get_device_module", lambda _: type("M", (), {"get_device_properties": lambda _: old}))
    with pytest.raises(ValueError, match=r"compute capability 8.0 or later; got 7.5 \(T4\): move the call to the CPU"):
        plan.chip_of.__wrapped__(torch.device("cuda"))


@pytest.mark.parametrize("name, wrong, message", [
    ("k", torch.zeros(1, 2, 6, 8), "k must have shape"),
    ("rule", "lgn(512)", "did you mean logn"),
    ("soft_cap", -1.0, "soft_cap must be finite and not negative; got -1"),
    ("key_end", torch.tensor([3, 4]), r"key_end must have shape \[1\]; got \[2\]"),
    ("sinks", torch.zeros(3), r"sinks must have shape \[2\]; got \[3\]"),
])  # fmt: skip
def test_errors_have_the_words_of_the_cpu(name, wrong, message):
    call = {"q": torch.zeros(1, 2, 5, 16), "k": torch.zeros(1, 2, 6, 16), "v": torch.zeros(1, 2, 6, 16)} | {name: wrong}
    with pytest.raises(ValueError, match=message):
        isentrope.gpu.attention(**call)


def test_nothing_is_read_back_from_the_device(monkeypatch):
    """Neither a wait nor a copy: what CUDA graphs need. Reading a tensor is what both have in common."""
    x = torch.randn(2, 2, 5, 16)
    mask, end = torch.ones(5, 5, dtype=torch.bool), torch.tensor([3, 5])

    def read(self, *_):
        raise AssertionError("a tensor was read")

    monkeypatch.setattr(launch.forward_kernel.__class__, "run", lambda *_, **__: None)
    for name in ("item", "tolist", "__bool__", "__int__", "__float__", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, read)
    isentrope.gpu.attention(x, x, x, attn_mask=mask, key_end=end, rule="log_length", return_stats=True)
