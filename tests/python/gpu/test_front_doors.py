"""Public functions run on the kernels, with the CPU's numbers, and on a GPU without further arguments."""

from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
import transformers as hf
from parted import MASKS, assert_parts_equal_the_whole
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor, Shard, distribute_tensor, init_device_mesh
from torch.nn.attention.varlen import varlen_attn
from torch.utils import _pytree as pytree

import isentrope
import isentrope.hf
from isentrope.gpu import operators
from isentrope.gpu.kernels.forward import forward_kernel
from isentrope.models.calibrate import entropies
from isentrope.models.evaluate import losses
from isentrope.sdpa import gpu as sdpa_gpu
from isentrope.sdpa.flash import FlashOperators

SIZES = dict(vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=64, pad_token_id=0)  # fmt: skip


@pytest.fixture
def launched(monkeypatch):
    names, kind = [], forward_kernel.__class__
    run = kind.run

    def noted(self, *args, **options):
        names.append(self.fn.__name__.removesuffix("_kernel"))
        return run(self, *args, **options)

    monkeypatch.setattr(kind, "run", noted)
    return names


@contextmanager
def by_the_cpu():
    """Runs the library's CPU implementation, which `isentrope.gpu` has replaced."""
    operators._LIBRARIES.pop()._destroy()
    try:
        yield
    finally:
        operators.register("CPU")


def assert_as_on_the_cpu(call, **tolerance):
    """Requires that a function computes what it does by the library's CPU implementation."""
    got = call()
    with by_the_cpu():
        want = call()
    torch.testing.assert_close(got, want, **tolerance)


def model(kind, attention="isentrope"):
    torch.manual_seed(3)
    made = {
        "causal": lambda: hf.LlamaConfig(**SIZES),
        "window": lambda: hf.MistralConfig(**SIZES, sliding_window=5),
        "sinks": lambda: hf.GptOssConfig(**SIZES, num_local_experts=2, num_experts_per_tok=1, sliding_window=5),
    }[kind]()
    return hf.AutoModelForCausalLM.from_config(made, attn_implementation=attention)


def gradients(output, *leaves):
    return output, *torch.autograd.grad(output.square().sum(), leaves)


def tensors(heads=4, queries=9):
    torch.manual_seed(1)
    return [torch.randn(2, h, queries, 16, requires_grad=True) for h in (heads, 2, 2)]


def trained_model(kind):
    trained = model(kind)
    isentrope.hf.set_rule(trained, "log_length", force=True)
    tokens, seen = torch.arange(24).view(2, 12) + 1, torch.ones(2, 12, dtype=torch.int64)
    seen[1, :5] = 0  # padding
    result = trained(tokens, attention_mask=seen, labels=torch.where(seen == 1, tokens, -100))
    logits = torch.where(seen[..., None] == 1, result.logits, 0)
    return logits, *torch.autograd.grad(result.loss, [p for p in trained.parameters() if p.requires_grad], allow_unused=True)


def generated():
    return model("window").eval().generate(torch.arange(1, 9).view(1, 8), max_new_tokens=4, min_new_tokens=4, do_sample=False)


def inspected():
    inspection = isentrope.inspect(model("causal", "sdpa"), [torch.arange(1, 17), torch.arange(16, 0, -1)])
    return inspection.mean, inspection.n_of_head


def torchs_own():
    """Runs torch's function as `isentrope.sdpa.activate` replaces it on GPUs."""
    q, k, v = tensors()
    library = torch.library.Library("aten", "IMPL")
    try:
        sdpa_gpu.replace(library, "log_length", ("CPU",))
        return gradients(F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), q, k, v)
    finally:
        library._destroy()


def torchs_flash_attention():
    """Runs torch's operators under `activate_flash_attention_impl("ISENTROPE")`: dense, packed and paged."""
    leaves, starts = tensors(), torch.tensor([0, 2, 2, 9], dtype=torch.int32)
    packed = [x[0].transpose(0, 1) for x in leaves]
    cache, table = torch.randn(5, 4, 2, 16), torch.tensor([[3, 1], [0, 0], [4, 2]], dtype=torch.int32)
    used = torch.tensor([5, 1, 8], dtype=torch.int32)
    library = torch.library.Library("aten", "IMPL")
    FlashOperators("log_length").register(library, "CPU")
    try:
        dense = torch.ops.aten._scaled_dot_product_flash_attention(*leaves, 0.0, True)[0]
        documents = varlen_attn(*packed, starts, starts, 7, 7, window_size=(-1, 0), enable_gqa=True)
        options = {"window_size": (3, 0), "enable_gqa": True, "seqused_k": used, "block_table": table}
        paged = varlen_attn(packed[0].detach(), cache, cache, starts, None, 7, 8, **options)
        return paged, *gradients(dense, *leaves), *gradients(documents, *leaves)
    finally:
        library._destroy()


def of_rows():
    q, k, v = tensors()
    lambda_ = torch.linspace(0.1, 1, 72).view(2, 4, 9).requires_grad_()
    output, statistics = isentrope.attention_rows(q, k, v, lambda_, causal=True, return_stats=True)
    return statistics, *gradients(output, q, k, v, lambda_)


def of_documents():
    leaves, starts = tensors(), torch.tensor([0, 2, 2, 9])
    q, k, v = (x[0].transpose(0, 1) for x in leaves)
    return gradients(isentrope.varlen_attention(q, k, v, starts, starts, rule="log_length", window_size=(-1, 0)), *leaves)


def of_pages():
    torch.manual_seed(1)
    q, cache = torch.randn(2, 4, 1, 16), torch.randn(9, 2, 4, 16)
    table = torch.tensor([[3, 1, 0], [8, 2, 7]])
    return isentrope.decode(q, cache, cache, table, torch.tensor([12, 7]), rule="log_length", return_stats=True)


def lengths():
    q, k, _ = tensors()
    return isentrope.row_lengths(q, k, causal=True, window_size=(3, -1), key_begin=torch.tensor([0, 4]))


def mapped():
    q, k, v = (x.detach().view(2, 1, *x.shape[1:]) for x in tensors())
    return torch.func.vmap(lambda *x: isentrope.attention(*x, causal=True, return_stats=True))(q, k, v)


def compiled():
    q, k, v = tensors()
    call = torch.compile(isentrope.attention, fullgraph=True, backend="aot_eager")
    output, statistics = call(q, k, v, rule="log_length", causal=True, return_stats=True)
    return statistics, *gradients(output, q, k, v)


def sharded():
    """DTensors on a mesh of one device, whose shards are whole."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        q, k, v = (distribute_tensor(x.detach(), mesh, [Shard(1)]).requires_grad_() for x in tensors())
        output, statistics = isentrope.attention(q, k, v, rule="log_length", causal=True, return_stats=True)
        assert isinstance(output, DTensor) and output.placements == (Shard(1),)
        return pytree.tree_map(lambda x: x.full_tensor(), (statistics, *gradients(output, q, k, v)))
    finally:
        dist.destroy_process_group()


FORWARD, BACKWARD = {"rows", "forward"}, {"gradient_rows", "query_gradient", "key_gradient"}
DOORS = {
    "a transformers model": (lambda: trained_model("causal"), FORWARD | BACKWARD),
    "one with windows and sinks": (lambda: trained_model("sinks"), FORWARD | BACKWARD),
    "generate": (generated, FORWARD),
    "inspect": (inspected, FORWARD),
    "sdpa.activate": (torchs_own, FORWARD | BACKWARD),
    "activate_flash_attention_impl": (torchs_flash_attention, FORWARD | BACKWARD),
    "attention_rows": (of_rows, FORWARD | BACKWARD),
    "varlen_attention": (of_documents, FORWARD | BACKWARD),
    "decode": (of_pages, FORWARD),
    "row_lengths": (lengths, {"rows"}),
    "torch.func.vmap": (mapped, FORWARD),
    "torch.compile": (compiled, FORWARD | BACKWARD),
    "DTensor": (sharded, FORWARD | BACKWARD),
}


@pytest.mark.parametrize("door", DOORS)
def test_it_goes_through_the_kernels_and_computes_the_same(door, launched):
    call, kernels = DOORS[door]
    got = call()
    assert kernels <= set(launched)
    launched.clear()
    with by_the_cpu():
        want = call()
    assert not launched
    for a, b in zip(pytree.tree_leaves(got), pytree.tree_leaves(want), strict=True):
        if isinstance(b, torch.Tensor):
            largest = torch.where(b.isfinite(), b, 0).abs().max().item()
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * largest, equal_nan=True)


class Reached(Exception):
    pass


@pytest.mark.parametrize("function", [isentrope.inspect, entropies, losses])
def test_texts_go_where_the_model_lies(function, monkeypatch):
    def forward(*_, input_ids, **__):
        raise Reached(input_ids.device.type)

    made, tokens = model("causal"), torch.ones(12, dtype=torch.int64)
    # The only device besides the CPU that every machine has.
    monkeypatch.setattr(hf.LlamaForCausalLM, "device", torch.device("meta"))
    monkeypatch.setattr(made.model, "forward", forward)
    with pytest.raises(Reached, match="meta"):
        function(made, tokens if function is losses else [tokens])


def test_a_mask_without_elements_lies_where_its_rows_do():
    with FakeTensorMode():
        function = hf.masking_utils.sliding_window_causal_mask_function(5)
        mask = isentrope.hf.row_mask(2, 12, 14, mask_function=function, device=torch.device("cuda"))
    assert isinstance(mask, isentrope.hf.RowMask)
    assert mask.device.type == mask.masks.key_end.device.type == "cuda"


@pytest.mark.parametrize("mask", MASKS)
def test_merged_parts_equal_the_whole_under_every_mask(mask):
    assert_parts_equal_the_whole(mask, [10])
