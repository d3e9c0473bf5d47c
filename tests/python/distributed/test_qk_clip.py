"""QK-clip over ranks: maxima and weights equal those of one process with every rank's batch."""

import pytest
import torch
import transformers
from families import GQA
from ranks import over
from torch import nn
from torch.distributed import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import isentrope.hf

TAU = 0.5


def model_of(kv_heads=4):
    torch.manual_seed(3)
    config = transformers.LlamaConfig(**GQA | {"num_key_value_heads": kv_heads}, attention_bias=True)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="isentrope").train()
    for name, parameter in model.named_parameters():
        parameter.data *= 20 if "q_proj" in name or "k_proj" in name else 1
    return model


def tokens(ranks):
    return torch.randint(3, 61, (2 * ranks, 12), generator=torch.Generator().manual_seed(1))


def alone(kv_heads, ranks):
    """Returns the largest logits, and the weights after a step, of a single process."""
    model = model_of(kv_heads)
    clip = isentrope.QKClip(model, TAU, group=torch.distributed.new_group([torch.distributed.get_rank()], use_local_synchronization=True))
    model(tokens(ranks))
    clip.step()
    return clip, model


def same(clip, model, kv_heads=4, ranks=2, parts=None):
    """parts: the inputs of this rank; None: its own rows of the batch."""
    rank = torch.distributed.get_rank()
    want, reference = alone(kv_heads, ranks)
    model(tokens(ranks)[2 * rank : 2 * rank + 2] if parts is None else parts)
    clip.step()
    torch.testing.assert_close(clip.largest, want.largest)
    assert (want.clipped > 0).any() and torch.equal(clip.clipped, want.clipped)
    for (name, a), b in zip(model.named_parameters(), reference.parameters()):
        a = a.full_tensor() if isinstance(a, DTensor) else a
        torch.testing.assert_close(a, b, msg=lambda text, name=name: name + text)


@over(2)
def test_replicated_weights(rank):
    model = DistributedDataParallel(model_of())
    same(isentrope.QKClip(model, TAU), model)


@over(2)
def test_sharded_weights(rank):
    for kv_heads in (4, 2):
        for whole in (True, False):
            model = model_of(kv_heads)
            for layer in model.model.layers:
                if not whole:  # query weights are sharded again when attention runs
                    fully_shard(layer.self_attn.q_proj)
                fully_shard(layer)
            fully_shard(model)
            same(isentrope.QKClip(model, TAU), model, kv_heads)


PLAN = {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"} | {"self_attn.o_proj": RowwiseParallel()}


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.long)])
@over(2)
def test_heads_over_ranks(rank, compiled):
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    for kv_heads in (2,) if compiled else (4, 2):
        model = model_of(kv_heads)
        for layer in model.model.layers:
            parallelize_module(layer, mesh, PLAN)
            if compiled:
                layer.compile(backend="eager", fullgraph=True)
        same(isentrope.QKClip(model, TAU), model, kv_heads, parts=tokens(2))


@pytest.mark.long
@over(4)
def test_heads_and_shards_over_four_ranks(rank):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = model_of()
    for layer in model.model.layers:
        parallelize_module(layer, mesh["tp"], PLAN)
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    same(isentrope.QKClip(model, TAU), model, ranks=2, parts=tokens(2).split(2)[mesh.get_local_rank("dp")])


@over(2)
def test_rows_over_ranks(rank):
    for method in ("ring", "all_gather", "all_to_all"):
        model = model_of(2)
        isentrope.hf.context_parallel(model, None, method=method)
        same(isentrope.QKClip(model, TAU), model, 2, parts=tokens(2))


class Twins(nn.Module):
    def __init__(self, function=isentrope.attention, **options):
        super().__init__()
        self.function, self.options = function, options
        torch.manual_seed(0)
        self.wq, self.wk = (nn.Linear(16, 24) for _ in "qk")

    def forward(self, x):
        q, k = (layer(x).unflatten(-1, (-1, 8)).transpose(1, 2) for layer in (self.wq, self.wk))
        return self.function(q, k, k, **self.options).transpose(1, 2).flatten(2)


@over(2)
def test_rows_over_ranks_under_a_soft_cap(rank):
    torch.manual_seed(1)
    x = 4 * torch.randn(2, 12, 16)
    for method in ("ring", "all_gather"):
        part = Twins(isentrope.distributed.attention, method=method, sequence_length=12, soft_cap=8.0)
        clip = isentrope.QKClip(part, 1e9, projections=isentrope.models.projections.named(q="wq", k="wk", head_dim=8))
        part(x[:, 6 * rank : 6 * rank + 6])
        clip.step()
        q, k = (layer(x).unflatten(-1, (-1, 8)).transpose(1, 2) for layer in (part.wq, part.wk))
        logits = (q @ k.mT / 8**0.5).amax((0, 2, 3))
        assert 10 < logits.min() and logits.max() < 48, logits  # the cap is 8
        torch.testing.assert_close(clip.largest, logits, rtol=0.02, atol=0)


@over(2)
def test_a_step_is_one_reduction(rank):
    model = nn.Sequential(Twins(), nn.Linear(24, 16), Twins())
    fully_shard(model[2])
    fully_shard(model)
    clip = isentrope.QKClip(model, 1e-3, projections=isentrope.models.projections.named(q="wq", k="wk", head_dim=8))
    model(torch.randn(2, 5, 16)).sum().backward()
    with CommDebugMode() as traffic:
        clip.step()
    # One collective for the maxima of both layers; scaling shards needs none.
    assert traffic.get_total_counts() == 1, traffic.get_comm_counts()
    assert clip.clipped.any()
