"""Operators under torch's transforms: opcheck, compile, export, torch.func, checkpointing, DTensor."""

import os

import pytest
import torch
import torch.distributed as dist
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

import isentrope
from isentrope._core.call import Call
from isentrope.statistics import ALL

B, H, KV, S, K, D = 2, 4, 2, 9, 11, 8
RULE = "entropy_invariant(base=7)"


def tensors(requires_grad=False):
    make = lambda h, s: torch.randn(B, h, s, D, requires_grad=requires_grad)  # noqa: E731
    return make(H, S), make(KV, K), make(KV, K)


def both(q, k, v):
    output, s = isentrope.attention(q, k, v, rule=RULE, causal=True, return_stats=("entropy",))
    return output, s.entropy


def samples():
    q, k, v = tensors(True)
    learned = {"bias": torch.randn(B, H, S, K, requires_grad=True), "sinks": torch.randn(H, requires_grad=True)}

    def call(**options):
        return Call(q, k, v, rule=RULE, causal=2, **options)

    return {
        "plain": call(),
        "padded": call(key_end=torch.tensor([K, 3])),
        "masked": call(attn_mask=torch.rand(B, H, S, K) > 0.5),
        "dropped": call(dropout_p=0.5, dropout_seed=torch.tensor(5)),
        "learned": call(lambda_=torch.rand(B, H, S, requires_grad=True), **learned),
    }


@pytest.mark.parametrize("wanted", [pytest.param(0b1, marks=pytest.mark.long), ALL])
@pytest.mark.parametrize("name", ["plain", "padded", "masked", "dropped", "learned"])
def test_opcheck(name, wanted):
    torch.library.opcheck(torch.ops.isentrope.attention.default, (*samples()[name], wanted))


def test_opcheck_heads_inside_rows():
    q, k, v = (torch.randn(B, 5, H, D).transpose(1, 2).requires_grad_() for _ in range(3))
    call = Call(q, k, v, rule=RULE)
    torch.library.opcheck(torch.ops.isentrope.attention.default, (*call, ALL))


def test_opcheck_of_the_others():
    call = [x.detach() if isinstance(x, torch.Tensor) else x for x in samples()["plain"]]
    torch.library.opcheck(torch.ops.isentrope.row_lengths.default, call)
    table, used = torch.tensor([[0], [1]], dtype=torch.int32), torch.tensor([9, 11])
    torch.library.opcheck(torch.ops.isentrope.decode.default, (*call, table, used, None, ALL))
    output, statistics, _ = torch.ops.isentrope.attention(*call, 3)
    backward = (*call, 3, output, statistics, output, statistics, True, True, True, False)
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.isentrope.attention_backward.default, backward, test_utils=tests)


@pytest.mark.parametrize("dynamic, backend", [
    (False, "aot_eager"),
    # Inductor's C++ compiler takes 18 s of processor time.
    pytest.param(False, "inductor", marks=pytest.mark.long), pytest.param(True, "inductor", marks=pytest.mark.long),
])  # fmt: skip
def test_compile(dynamic, backend):
    compiled = torch.compile(both, fullgraph=True, dynamic=dynamic, backend=backend)
    for length in (K, K + 4) if dynamic else (K,):
        q = torch.randn(B, H, length, D, requires_grad=True)
        k = torch.randn(B, KV, length, D, requires_grad=True)
        want, got = both(q, k, k), compiled(q, k, k)
        for a, b in zip(want, got):
            torch.testing.assert_close(a, b)
        wanted = torch.autograd.grad(want[0].sum() + want[1].sum(), (q, k))
        for a, b in zip(wanted, torch.autograd.grad(got[0].sum() + got[1].sum(), (q, k))):
            torch.testing.assert_close(a, b)


def test_compile_does_not_compile_again_for_every_offset():
    counter = torch._dynamo.testing.CompileCounter()

    @torch.compile(fullgraph=True, dynamic=True, backend=counter)
    def step(q, k, offset):
        return isentrope.attention(q, k, k, causal="top_left", query_offset=offset)

    q, k, _ = tensors()
    for offset in range(2, 7):
        want = isentrope.attention(q, k, k, causal="top_left", query_offset=offset)
        torch.testing.assert_close(step(q, k, offset), want)
    assert counter.frame_count <= 2


def test_export_with_a_dynamic_length():
    class Module(torch.nn.Module):
        def forward(self, q, k, v):
            return both(q, k, v)

    length = torch.export.Dim("length", min=2, max=64)
    shapes = {"q": {2: length}, "k": {2: length}, "v": {2: length}}
    exported = torch.export.export(Module(), tuple(torch.randn(B, 2, 8, D) for _ in range(3)), dynamic_shapes=shapes)
    longer = tuple(torch.randn(B, 2, 13, D) for _ in range(3))
    for a, b in zip(exported.module()(*longer), both(*longer)):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("bits", [8, 32])
def test_forward_mode_through_decode_is_an_error(bits):
    q, cache, _ = tensors()
    scales = {}
    if bits == 8:
        cache, scale = isentrope.quantize(cache)
        scales = {"k_scale": scale, "v_scale": scale}
    table, used = torch.tensor([[0], [1]]), torch.tensor([K, K])
    decode = lambda q: isentrope.decode(q, cache, cache, table, used, **scales)  # noqa: E731
    with pytest.raises(NotImplementedError, match="forward-mode"):
        torch.func.jvp(decode, (q,), (torch.ones_like(q),))
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward-mode"):
        decode(forward_ad.make_dual(q, torch.ones_like(q)))
    with forward_ad.dual_level():
        assert decode(q).isfinite().all(), "of constants there are none"


def test_checkpointing_gives_the_same_gradients():
    leaves = tensors(True)
    loss = lambda *x: sum(part.sum() for part in both(*x))  # noqa: E731
    want = torch.autograd.grad(loss(*leaves), leaves)
    got = torch.autograd.grad(checkpoint(loss, *leaves, use_reentrant=False), leaves)
    assert all(torch.equal(a, b) for a, b in zip(want, got))


def _sharded(rank, path, check):
    from torch.distributed.tensor import init_device_mesh

    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    torch.manual_seed(0)
    check(init_device_mesh("cpu", (2,)))
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # Gloo's threads may outlive the group, and the interpreter would abort at exit


def sharded(check, tmp_path):
    torch.multiprocessing.spawn(_sharded, (str(tmp_path / "store"), check), nprocs=2)


def _gradients_of_shards(mesh):
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    leaves, sinks = tensors(True), torch.randn(H, requires_grad=True)

    def loss(q, k, v, sinks):
        output, s = isentrope.attention(q, k, v, rule=RULE, sinks=sinks, return_stats=("entropy", "support"))
        return output, output.square().sum() + s.entropy.sum()

    want = torch.autograd.grad(loss(*leaves, sinks)[1], (*leaves, sinks))
    for axis in (0, 1):
        place = [Shard(axis)], [Shard(0) if axis == 1 else Replicate()]
        parts = [distribute_tensor(x.detach(), mesh, place[0]).requires_grad_() for x in leaves]
        parts.append(distribute_tensor(sinks.detach(), mesh, place[1]).requires_grad_())
        output, value = loss(*parts)
        assert isinstance(output, DTensor) and output.placements == (Shard(axis),)
        value.backward()
        for part, gradient in zip(parts, want):
            torch.testing.assert_close(part.grad.full_tensor(), gradient)


@pytest.mark.long
def test_tensors_sharded_by_batch_and_by_head(tmp_path):
    sharded(_gradients_of_shards, tmp_path)


def _second_order_of_shards(mesh):
    from torch.distributed.tensor import Shard, distribute_tensor

    leaves = tensors(True)

    def penalty(*x):
        output, s = isentrope.attention(*x, rule=RULE, causal=True, return_stats=("entropy",))
        gradients = torch.autograd.grad(output.square().sum() + s.entropy.sum(), x, create_graph=True)
        return sum(g.square().sum() for g in gradients)

    want = torch.autograd.grad(penalty(*leaves), leaves)
    for axis in (0, 1):
        parts = [distribute_tensor(x.detach(), mesh, [Shard(axis)]).requires_grad_() for x in leaves]
        for part, gradient in zip(torch.autograd.grad(penalty(*parts), parts), want):
            assert part.placements == (Shard(axis),)
            torch.testing.assert_close(part.full_tensor(), gradient)


@pytest.mark.long
def test_second_order_of_sharded_tensors(tmp_path):
    sharded(_second_order_of_shards, tmp_path)


def _dropout_of_shards(mesh):
    from torch.distributed.tensor import Shard, distribute_tensor

    leaves = tensors(True)
    options = {"dropout_p": 0.3, "dropout_seed": 11}
    want = isentrope.attention(*leaves, **options)
    wanted = torch.autograd.grad(want.square().sum(), leaves)
    for axis in (0, 1, 2):
        parts = [distribute_tensor(x.detach(), mesh, [Shard(axis)]).requires_grad_() for x in leaves]
        got = isentrope.attention(*parts, **options)
        torch.testing.assert_close(got.full_tensor(), want)
        got.square().sum().backward()
        for part, gradient in zip(parts, wanted):
            torch.testing.assert_close(part.grad.full_tensor(), gradient)
        with pytest.raises(ValueError, match="dropout_seed must be given with DTensors"):
            isentrope.attention(*parts, dropout_p=0.3)


@pytest.mark.long
def test_dropout_of_sharded_tensors_is_that_of_whole_ones(tmp_path):
    sharded(_dropout_of_shards, tmp_path)


def _heads_that_belong_together(mesh):
    from torch.distributed.tensor import Shard, distribute_tensor

    for heads, kv, rule in ((12, 3, RULE), (6, 3, RULE), (3, 3, RULE), (H, KV, "ssmax(s=[0.1,0.2,0.3,0.4])")):
        leaves = [torch.randn(B, h, S, D, requires_grad=True) for h in (heads, kv, kv)]
        parts = [distribute_tensor(x.detach(), mesh, [Shard(1)]).requires_grad_() for x in leaves]
        results = [isentrope.attention(*x, rule=rule, causal=True) for x in (leaves, parts)]
        torch.testing.assert_close(results[1].full_tensor(), results[0])
        for result in results:
            result.square().sum().backward()
        for part, leaf in zip(parts, leaves):
            torch.testing.assert_close(part.grad.full_tensor(), leaf.grad)


@pytest.mark.long
def test_heads_that_belong_together_are_not_cut_apart(tmp_path):
    sharded(_heads_that_belong_together, tmp_path)


def _lists_that_all_heads_share(mesh):
    from torch.distributed.tensor import Shard, distribute_tensor

    leaves = tensors()
    for rule in ("table(n=[1, 4, 16], factor=[1, 2, 3])", "per_row(lambda=[0.1, 0.2, 0.3])"):
        want = isentrope.attention(*leaves, rule=rule, causal=True)
        for axis in (0, 1):
            parts = [distribute_tensor(x, mesh, [Shard(axis)]) for x in leaves]
            got = isentrope.attention(*parts, rule=rule, causal=True)
            assert got.placements == (Shard(axis),)
            torch.testing.assert_close(got.full_tensor(), want)


@pytest.mark.long
def test_a_rule_with_one_list_for_all_heads_is_no_reason_to_gather(tmp_path):
    sharded(_lists_that_all_heads_share, tmp_path)


def _learned_scales(mesh):
    from torch.distributed.tensor import Shard, distribute_module, distribute_tensor

    leaves = tensors()
    module = isentrope.SSMax(H, learn_b=True)
    want = module(*leaves, causal=True)
    wanted = torch.autograd.grad(want.square().sum(), tuple(module.parameters()))
    distribute_module(module, mesh)
    for axis in (0, 1):
        module.zero_grad()
        got = module(*(distribute_tensor(x, mesh, [Shard(axis)]) for x in leaves), causal=True)
        torch.testing.assert_close(got.full_tensor(), want)
        got.square().sum().backward()
        for parameter, gradient in zip(module.parameters(), wanted):
            torch.testing.assert_close(parameter.grad.full_tensor(), gradient)


@pytest.mark.long
def test_a_learned_scale_of_sharded_tensors(tmp_path):
    sharded(_learned_scales, tmp_path)


def _caches(mesh):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    q, pages = torch.randn(B, H, 1, D), torch.randn(6, KV, 4, D)
    table, used = torch.tensor([[5, 0], [2, 1]]), torch.tensor([7, 3])
    want = isentrope.decode(q, pages, pages, table, used, rule=RULE)
    for axis in (0, 1):
        cached, tables = (Replicate(), Shard(0)) if axis == 0 else (Shard(1), Replicate())
        placed = (Shard(axis), cached, cached, tables, tables)
        parts = [distribute_tensor(x, mesh, [p]) for x, p in zip((q, pages, pages, table, used), placed)]
        got = isentrope.decode(*parts, rule=RULE)
        assert got.placements == (Shard(axis),)
        torch.testing.assert_close(got.full_tensor(), want)


@pytest.mark.long
def test_a_cache_whose_sequences_or_heads_are_sharded(tmp_path):
    sharded(_caches, tmp_path)
