"""QK-clip's reading of calls: compiled blocks, nested modules, calls that cannot be read, and several devices."""

import copy
import pickle
import warnings

import pytest
import torch
from refusals import assert_refused
from test_qk_clip import NAMED, Attention, blocks, clips_end, torchs_function  # noqa: F401, clips end after each test
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch._subclasses import FakeTensorMode
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

import isentrope
from isentrope._core.observers import running
from isentrope.models import projections


class Block(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.attention, self.linear = Attention(function=function, is_causal=True, enable_gqa=True), nn.Linear(32, 32)

    def forward(self, x):
        return x + self.linear(self.attention(x))


@pytest.mark.parametrize("function", [isentrope.attention, pytest.param(torchs_function, marks=pytest.mark.long)])
def test_blocks_compiled_one_by_one_share_their_graphs(function):
    torch._dynamo.reset()
    torch.manual_seed(1)
    model, x, graphs = nn.Sequential(*(Block(function) for _ in range(12))), torch.randn(2, 9, 32), CompileCounter()
    alone = copy.deepcopy(model)
    clips = [isentrope.QKClip(each, 0.3, projections=NAMED) for each in (alone, model)]
    for block in model:
        block.compile(fullgraph=True, backend=graphs)
    for _ in range(2):
        for each, clip in zip((alone, model), clips):
            each(x).sum().backward()
            clip.step()
    assert graphs.frame_count == 2  # the first input needs no gradient, those of later blocks do
    assert clips[0].clipped.any() and torch.equal(clips[0].clipped, clips[1].clipped)
    torch.testing.assert_close(clips[1].largest, clips[0].largest)


def test_one_function_compiled_for_all_blocks_has_one_graph():
    torch._dynamo.reset()
    graphs = CompileCounter()
    model = blocks(12, function=torch.compile(torchs_function, fullgraph=True, backend=graphs), enable_gqa=True)
    clip = isentrope.QKClip(model, 1.0, projections=NAMED)
    model(torch.randn(2, 9, 32))
    clip.step()
    assert graphs.frame_count == 1 and clip.largest.isfinite().all()


class Outer(Attention):
    """Calls another attention module before its own attention."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return super().forward(x + self.inner(x))


def test_a_module_inside_does_not_end_the_reading_of_the_outer_one():
    torch.manual_seed(1)
    x, inner = torch.randn(2, 9, 32), Attention()
    for training in (True, False):
        model = nn.Sequential(Outer(inner.train(training)))
        clip = isentrope.QKClip(model, 1e9, projections=NAMED)
        model(x)
        clip.step()
        largest = [model[0].logits(x + inner(x)), inner.logits(x) if training else torch.full((1, 4, 1, 1), -torch.inf)]
        torch.testing.assert_close(clip.largest, torch.cat([logits.amax((0, 2, 3)) for logits in largest]))


class Unreadable(Attention):
    def forward(self, x):
        q, k, v = self.heads(x)
        return ((q @ k.repeat_interleave(2, 1).mT).softmax(-1) @ v.repeat_interleave(2, 1)).transpose(1, 2).flatten(2)


def test_a_layer_that_cannot_be_read_is_named_beside_one_that_can():
    model = nn.Sequential(Attention(), Unreadable())
    clip = isentrope.QKClip(model, projections=NAMED)
    model(torch.randn(1, 3, 32))
    assert_refused("got forward passes without such a call of 1: pass projections=", clip.step)
    clip = isentrope.QKClip(model, projections=lambda name, module: None if name == "1" else NAMED(name, module))
    model(torch.randn(1, 3, 32))
    clip.step()


def test_a_resumed_run_that_cannot_be_read_is_refused():
    state = isentrope.QKClip(blocks(1), projections=NAMED).state_dict()
    model = nn.Sequential(Unreadable())
    clip = isentrope.QKClip(model, projections=NAMED)
    clip.load_state_dict(state)
    model(torch.randn(1, 3, 32))
    assert_refused("attention must be computed by", clip.step)


class Sometimes(Attention):
    readable = True

    def forward(self, x):
        return super().forward(x) if self.readable else x


def test_a_call_that_is_missed_later_warns_once():
    model = nn.Sequential(Sometimes())
    clip = isentrope.QKClip(model, projections=NAMED)
    model(torch.randn(1, 3, 32))
    clip.step()
    model[0].readable = False
    model(torch.randn(1, 3, 32))
    with pytest.warns(UserWarning, match="forward passes of 0 made no attention call"):
        clip.step()
    model(torch.randn(1, 3, 32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clip.step()


def test_modules_that_do_not_run_stay_as_they_are():
    model = blocks(3)
    clip = isentrope.QKClip(model, 1e-3, projections=NAMED)
    assert_refused("got no forward pass of 0, 1, 2", clip.step)
    model[1].eval()
    before = copy.deepcopy(model.state_dict())
    for _ in range(2):
        model[:2](torch.randn(2, 9, 32))
        clip.step()
    assert not any(torch.equal(x, before[key]) == key.startswith("0") for key, x in model.state_dict().items())
    assert (clip.largest[4:] == -torch.inf).all()


def test_frozen_projections_are_left_alone():
    model = blocks(2)
    model[0].qkv.requires_grad_(False)
    before = model[0].qkv.weight.clone()
    clip = isentrope.QKClip(model, 1e-3, projections=NAMED)
    model(torch.randn(2, 9, 32))
    clip.step()
    assert torch.equal(model[0].qkv.weight, before) and set(clip.state_dict()["largest"]) == {"1"}
    assert_refused("got frozen ones alone", isentrope.QKClip, model[:1], projections=NAMED)
    model[0].qkv.adapter = nn.Linear(3, 3)
    with pytest.raises(ValueError, match="in 0 must train as a whole, or not at all; got a frozen parameter: merge adapters"):
        isentrope.QKClip(model[:1], projections=NAMED)


def test_torchs_module_with_frozen_inputs_is_left_alone():
    module = nn.MultiheadAttention(16, 2)
    module.in_proj_weight.requires_grad_(False)
    module.in_proj_bias.requires_grad_(False)
    assert_refused("got frozen ones alone", isentrope.QKClip, module)


def test_a_forward_pass_that_ctrl_c_ends_leaves_nothing():
    class Interrupted(Attention):
        def forward(self, x):
            raise KeyboardInterrupt

    model = nn.Sequential(Interrupted())
    clip = isentrope.QKClip(model, projections=NAMED)
    with pytest.raises(KeyboardInterrupt):
        model(torch.randn(2, 9, 32))
    clip.remove()
    isentrope.attention(*torch.randn(3, 1, 3, 5, 16))  # of another number of heads
    assert running.maxima is None and running.outer is None


def test_a_later_clip_takes_the_place_of_an_earlier_one():
    model = blocks(1)
    first = isentrope.QKClip(model, projections=NAMED)
    second = isentrope.QKClip(model, projections=NAMED)
    model(torch.randn(2, 9, 32))
    assert_refused("got a later one", first.step)
    first.remove()
    model(torch.randn(2, 9, 32))
    second.step()
    assert second.largest.isfinite().all()
    second.remove()
    assert not model[0]._forward_hooks and not model[0]._forward_pre_hooks
    third = isentrope.QKClip(pickle.loads(pickle.dumps(model)), projections=NAMED)
    assert third.largest.shape == (4,)


@pytest.mark.parametrize("wrapped", [torch.compile, checkpoint_wrapper])
def test_a_wrapper_that_forwards_attributes_is_no_second_attention(wrapped):
    def find(name, module):
        return projections.fused(module.qkv, 8, 2) if hasattr(module, "qkv") else None

    clip = isentrope.QKClip(nn.Sequential(wrapped(Attention())), projections=find)
    assert list(clip.state_dict()["largest"]) == ["0"] and clip.largest.shape == (4,)


class OnDevice(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.qkv = nn.Linear(1, 1)
        shapes = ((64, 32), (64,))
        self.qkv.weight, self.qkv.bias = (nn.Parameter(torch.empty(shape, device=device)) for shape in shapes)

    def forward(self, q):
        return isentrope.attention(q, q, q)


@pytest.mark.parametrize("devices", [("cpu", "cuda:0", "cuda:1"), ("cpu",)], ids=["model parallel", "CPU offload"])
def test_layers_on_several_devices(devices):
    with FakeTensorMode(), torch.no_grad():
        model = nn.ModuleList(map(OnDevice, devices))
        clip = isentrope.QKClip(model, 1.0, projections=NAMED)
        model[0](torch.empty(2, 4, 9, 8, device="cpu" if len(devices) > 1 else "cuda:0"))
        clip.step()
        assert clip.largest.device.type == "cpu" and clip.largest.shape == (4 * len(devices),)


def test_a_state_is_loaded_by_name():
    model = blocks()
    clip = isentrope.QKClip(model, projections=NAMED)
    model(torch.randn(2, 9, 32))
    state = clip.state_dict()
    state["clipped"] = {name: torch.full((4,), int(name)) for name in state["clipped"]}
    other = isentrope.QKClip(model, projections=NAMED)
    other.load_state_dict({key: dict(reversed(values.items())) for key, values in state.items()})
    assert other.clipped.tolist() == [0] * 4 + [1] * 4
    for name, largest in other.state_dict()["largest"].items():
        assert torch.equal(largest, state["largest"][name])
    assert_refused("state must be that of", other.load_state_dict, state | {"clipped": {"0": state["clipped"]["0"]}})
