"""Models of diffusers, layers of timm and modules of torch, whose attention runs on the operator instead of torch's
kernels."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import torch

import isentrope
from case import Case, installed, without_init
from isentrope.sdpa import activation

PACKAGES = ("diffusers==0.42.1", "timm==1.0.31", "importlib_metadata", "zipp")
TITLE = "models of diffusers 0.42.1, layers of timm 1.0.31, modules of torch"


def cases(folder: Path) -> Iterator[Case]:
    """Yields each module in eval mode without gradients, and in training mode with gradients and dropout 0."""
    installed(folder, *PACKAGES)
    yield from cases_of(DIFFUSERS + TORCH)
    # Importing timm as a whole requires torchvision; its attention files do not.
    without_init(folder / "packages", "timm", "timm.layers")
    yield from cases_of(TIMM)


def cases_of(makers: list[Callable]) -> Iterator[Case]:
    for maker in makers:
        for training in (False, True):
            yield Case(f"{maker.__name__} {'train' if training else 'eval'}", functools.partial(check, maker, training))


def check(maker: Callable, training: bool) -> None:
    """Requires equal results with the operator, which must be called, and different ones under a rule."""
    torch.manual_seed(0)
    module, call = maker()
    module.train(training)
    plain = results(module, call, training)
    with isentrope.sdpa.activate():
        same = results(module, call, training)
    # Calls with gradients go through the second.
    operators = ((activation.CHECKED, "attention"), (activation, "differentiable"))
    plain_calls, calls_with_gradients = (mock.patch.object(*of, wraps=getattr(*of)) for of in operators)
    with plain_calls as eager, calls_with_gradients as trained, isentrope.sdpa.activate("constant(scale=0)"):
        ruled = results(module, call, training)
    # Gradients that are 0 up to rounding are compared relative to the largest of all.
    atol = 1e-5 * max(float(x.abs().max()) for x in plain)
    torch.testing.assert_close(same, plain, rtol=1e-3, atol=atol)
    assert (trained if training else eager).called, "the operator was not called"
    assert not torch.allclose(ruled[0], plain[0], rtol=1e-4, atol=1e-5), "the rule changes nothing"


def results(module, call: Callable, training: bool) -> list[torch.Tensor]:
    torch.manual_seed(1)
    with torch.set_grad_enabled(training):
        output = call(module)
    output = output[0] if isinstance(output, tuple) else getattr(output, "sample", output)
    if not training:
        return [output]
    leaves = [x for x in module.parameters() if x.requires_grad]
    found = torch.autograd.grad(output.square().sum(), leaves, allow_unused=True)
    return [output.detach(), *(x for x in found if x is not None)]


def of_diffusers(name: str, sizes: dict, call: Callable) -> Callable:
    def make():
        model = getattr(importlib.import_module("diffusers"), name)(**sizes)
        for x in model.parameters():  # zero-initialised parameters would hide the layers before them
            torch.nn.init.normal_(x, std=0.3 if x.dim() > 1 else 0.1)
        return model, call

    make.__name__ = name
    return make


IMAGE, TEXT, STEP = (2, 4, 8, 8), (2, 7, 32), torch.tensor([3, 5])
DIFFUSERS = [
    of_diffusers(
        "UNet2DConditionModel",
        dict(sample_size=8, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8, cross_attention_dim=32, attention_head_dim=8,
             down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D")),
        lambda m: m(torch.randn(IMAGE), STEP, torch.randn(TEXT), encoder_attention_mask=torch.arange(7) < torch.tensor([[7], [4]])),
    ),
    of_diffusers(
        "AutoencoderKL", dict(block_out_channels=(16,), norm_num_groups=8, sample_size=8), lambda m: m(torch.randn(2, 3, 8, 8)),
    ),
    of_diffusers(
        "DiTTransformer2DModel",
        dict(num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=4, num_layers=1, norm_num_groups=4, sample_size=8,
             num_embeds_ada_norm=8),
        lambda m: m(torch.randn(IMAGE), timestep=STEP, class_labels=torch.tensor([1, 2])),
    ),
    of_diffusers(
        "SD3Transformer2DModel",
        dict(sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2, caption_projection_dim=16,
             joint_attention_dim=32, pooled_projection_dim=16, out_channels=4, pos_embed_max_size=8),
        lambda m: m(torch.randn(IMAGE), torch.randn(TEXT), torch.randn(2, 16), STEP),
    ),
    of_diffusers(
        "FluxTransformer2DModel",
        dict(patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
             joint_attention_dim=32, pooled_projection_dim=16, axes_dims_rope=(4, 4, 8)),
        lambda m: m(torch.randn(2, 9, 4), torch.randn(TEXT), torch.randn(2, 16), torch.rand(2), torch.zeros(9, 3), torch.zeros(7, 3)),
    ),
]  # fmt: skip


def of_timm(file: str, name: str, call: Callable | None = None, **sizes) -> Callable:
    def make():
        module = getattr(importlib.import_module(f"timm.layers.{file}"), name)(**sizes)
        for x in module.parameters():
            torch.nn.init.normal_(x, std=0.3)
        return module, call or (lambda m: m(torch.randn(2, 9, 32)))

    make.__name__ = f"timm {name} {' '.join(sizes)}"
    return make


TIMM = [
    of_timm("attention", "Attention", dim=32, num_heads=4),
    of_timm("attention", "Attention", dim=32, num_heads=4, qk_norm=True, norm_layer=torch.nn.LayerNorm),
    of_timm("attention", "Attention", lambda m: m(torch.randn(2, 9, 32), attn_mask=torch.ones(9, 9).tril().bool()), dim=32, num_heads=4, qkv_bias=True),
    of_timm("attention", "AttentionRope", dim=32, num_heads=4),
    of_timm("attention_pool", "AttentionPoolLatent", in_features=32, num_heads=4, latent_len=3),
]


def attention():
    x = torch.randn(2, 9, 32)
    pad = torch.arange(9) >= torch.tensor([[9], [6]])
    module = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    return module, lambda m: m(x, x, x, key_padding_mask=pad, need_weights=False)[0]


def encoder(**options):
    x, pad = torch.randn(2, 9, 32), torch.arange(9) >= torch.tensor([[9], [6]])
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, **options)
    module = torch.nn.TransformerEncoder(layer, 2)
    return module, lambda m: m(x, src_key_padding_mask=pad).masked_fill(pad[..., None], 0)


def norm_first():
    return encoder(norm_first=True)


def decoder():
    x, y, mask = torch.randn(2, 9, 32), torch.randn(2, 7, 32), torch.nn.Transformer.generate_square_subsequent_mask(7)
    module = torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(32, 4, 64, dropout=0.0, batch_first=True), 2)
    return module, lambda m: m(y, x, tgt_mask=mask, tgt_is_causal=True)


TORCH = [attention, encoder, norm_first, decoder]
