"""QK-clip in models of transformers: logits after a step follow the formula, for every layout of projections."""

import copy
import warnings

import pytest
import tiny_model
import torch
import transformers as hf
from families import CAUSAL, ENCODERS, GQA, SIZES
from torch import nn
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl
from transformers.models.qwen2_vl import modeling_qwen2_vl

import isentrope
import isentrope.hf
from isentrope.hf.recording import observing
from isentrope.models import qk_clip

MLA = SIZES | dict(q_lora_rank=12, kv_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6, n_routed_experts=2,
                   num_experts_per_tok=1, n_group=1, topk_group=1, moe_intermediate_size=16, first_k_dense_replace=2)  # fmt: skip
MODELS = {
    "llama": lambda: hf.LlamaConfig(**GQA, attention_bias=True),
    "llama, own keys": lambda: hf.LlamaConfig(**GQA | {"num_key_value_heads": 4}, attention_bias=True),
    "phi3": lambda: hf.Phi3Config(**GQA),
    "deepseek_v3": lambda: hf.DeepseekV3Config(**MLA),
    "deepseek_v3, no query latent": lambda: hf.DeepseekV3Config(**MLA | {"q_lora_rank": None}),
    "gpt2": CAUSAL["gpt2"],
    "gpt_neox": CAUSAL["gpt_neox"],
    "gpt_oss": CAUSAL["gpt_oss"],
}
ENCODING = ("bert", "modernbert", "t5")


def gpt2_with_encoder():
    config = CAUSAL["gpt2"]()
    config.add_cross_attention = True
    return config


def falcon(**layout):
    return hf.FalconConfig(**SIZES, alibi=False, **layout)


FALCONS = {
    "a key a head": lambda: falcon(multi_query=False, new_decoder_architecture=False),
    "one key": lambda: falcon(multi_query=True, new_decoder_architecture=False),
    "grouped keys": lambda: falcon(new_decoder_architecture=True, num_kv_heads=2),
}


def model_of(name):
    torch.manual_seed(3)
    if name in ENCODERS:
        config, kind = ENCODERS[name]()
        return kind(config).double().train()
    # The grouped products of experts have no float64.
    return hf.AutoModelForCausalLM.from_config(MODELS[name](), experts_implementation="eager").double().train()


def largen(model, by=6.0):
    for parameter in model.parameters():
        parameter.data *= by if parameter.dim() == 2 else 1.0


class Calls:
    """Records the arguments of every attention module's call, and its unmasked logits when called with them again."""

    def __init__(self, modules):
        self.inputs = {}
        for module in modules:
            module.register_forward_pre_hook(self._keep, with_kwargs=True)

    def _keep(self, module, args, kwargs):
        self.inputs.setdefault(module, (args, kwargs))

    def logits(self, module):
        logits_by_call = []

        def see(_, q, k, options):
            scale = options["scale"] or q.shape[-1] ** -0.5
            logits_by_call.append(scale * q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT)

        args, kwargs = self.inputs[module]
        with observing(see), torch.no_grad():
            module(*args, **kwargs)
        return logits_by_call[0]


def gammas(clip, name, tau):
    """Returns the factor of every head of a module, from the clip's report."""
    largest = [value for key, value in clip.heads().items() if key.startswith(f"qk_clip/{name}/head")]
    return torch.tensor([min(1.0, tau / value) for value in largest], dtype=torch.float64)


@pytest.mark.parametrize("name", [*MODELS, *ENCODING])
def test_the_logits_after_a_step_are_those_of_the_formula(name):
    model = model_of(name)
    largen(model)
    model.set_attn_implementation("isentrope")
    clip = isentrope.QKClip(model, tau=0.02)
    modules = dict(model.named_modules())
    attentions = {key: modules[key] for key in clip.state_dict()["largest"]}
    calls, tokens = Calls(attentions.values()), torch.randint(3, 61, (2, 20))
    model(tokens, **({} if name in ENCODING else {"use_cache": False}))
    before = {key: calls.logits(module) for key, module in attentions.items()}
    values = dict(model.state_dict().items())
    values = copy.deepcopy(values)
    clip.step()
    clipped = 0
    for key, module in attentions.items():
        gamma = gammas(clip, key, 0.02)
        clipped += int((gamma < 1).sum())
        # ModernBERT rotates in float32.
        exact = {"rtol": 1e-5, "atol": 1e-7} if name == "modernbert" else {"rtol": 1e-9, "atol": 1e-12}
        torch.testing.assert_close(calls.logits(module), gamma[:, None, None] * before[key], **exact)
    assert clipped == clip.summary()["qk_clip/clipped"] >= len(attentions)
    # Only rows of queries and keys change: values, latent projections and the shared rotated key do not.
    touched = {key.rsplit(".", 2)[1] for key, x in model.state_dict().items() if not torch.equal(x, values[key])}
    assert touched <= {"q_proj", "k_proj", "qkv_proj", "q_b_proj", "kv_b_proj", "c_attn", "query_key_value", "query", "key", "Wqkv",
                       "q", "k"}, touched  # fmt: skip
    assert ("k_proj" in touched) == (name == "llama, own keys")


def logits_of_torchs_calls(monkeypatch):
    """A list that gets the unmasked logits of each call of torch's function."""
    torchs_function, logits_by_call = torch.nn.functional.scaled_dot_product_attention, []

    def see(q, k, *args, **options):
        logits_by_call.append(q @ k.expand(-1, q.shape[1] // k.shape[1] * k.shape[1], -1, -1).mT / q.shape[-1] ** 0.5)
        return torchs_function(q, k, *args, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", see)
    return logits_by_call


def around_a_step(config, attention_of, call, monkeypatch, **inputs):
    """Returns a clip after a step, one of its attention modules, and the unmasked logits of that before and after.

    call: number of the module's call of torch's function."""
    torch.manual_seed(3)
    model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").double().train()
    largen(model)
    attention, passed = attention_of(model.transformer.h[0]), []
    attention.register_forward_pre_hook(lambda *given: passed.append(given[1:]), with_kwargs=True)
    clip, logits_by_call = isentrope.QKClip(model, tau=0.02), logits_of_torchs_calls(monkeypatch)
    model(torch.randint(3, 61, (2, 20)), use_cache=False, **inputs)
    values = {name: x.clone() for name, x in attention.named_parameters()}
    clip.step()
    with torch.no_grad():
        attention(*passed[0][0], **passed[0][1])
    return clip, attention, values, logits_by_call[call], logits_by_call[-1]


def assert_scaled(largest, before, after, mask=None):
    """Requires these largest logits before a step, and that the step scaled some by the formula."""
    wanted = (before if mask is None else before.masked_fill(~mask, -torch.inf)).amax((0, 2, 3))
    torch.testing.assert_close(largest, wanted)
    gamma = (0.02 / wanted).clamp(max=1)[:, None, None]
    assert (gamma < 1).any()
    torch.testing.assert_close(after, gamma * before, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("layout", FALCONS)
def test_every_layout_of_falcon_is_read_through_torchs_function(layout, monkeypatch):
    clip, _, _, *logits = around_a_step(FALCONS[layout](), lambda layer: layer.self_attention, 0, monkeypatch)
    assert_scaled(clip.largest[:4], *logits, torch.ones(20, 20, dtype=torch.bool).tril())


def test_cross_attention_of_gpt2_is_scaled_by_its_own_projections(monkeypatch):
    encoded = torch.randn(2, 7, 32, dtype=torch.float64)
    clip, attention, values, *logits = around_a_step(
        gpt2_with_encoder(), lambda layer: layer.crossattention, 1, monkeypatch, encoder_hidden_states=encoded
    )  # the second call of the first layer
    largest = [value for name, value in clip.heads().items() if "h.0.crossattention" in name]
    assert_scaled(torch.tensor(largest, dtype=torch.float64), *logits)
    assert torch.equal(attention.c_attn.weight[:, 32:], values["c_attn.weight"][:, 32:])


def test_sinks_are_no_logits():
    largest = []
    for sink in (0.0, 50.0):
        model = model_of("gpt_oss")
        model.set_attn_implementation("isentrope")
        for layer in model.model.layers:
            layer.self_attn.sinks.data.fill_(sink)
        clip = isentrope.QKClip(model, tau=1e9)
        model(torch.arange(3, 23)[None], use_cache=False)
        clip.step()
        largest.append(clip.largest[:4])  # the input of later layers depends on the sinks
    assert torch.equal(*largest) and (largest[0] < 50).all()


@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
def test_norms_of_queries_are_refused(name):
    model = hf.AutoModelForCausalLM.from_config(CAUSAL[name]())
    with pytest.raises(ValueError, match="must not be normalised after their projections, because scaling.*got q_norm"):
        isentrope.QKClip(model)


QWEN = dict(depth=1, embed_dim=32, hidden_size=32, num_heads=4, patch_size=2, temporal_patch_size=1, spatial_merge_size=1,
            intermediate_size=48, out_hidden_size=32)  # fmt: skip
VISION = {
    "qwen2_vl": lambda: modeling_qwen2_vl.Qwen2VisionTransformerPretrainedModel._from_config(
        modeling_qwen2_vl.Qwen2VLVisionConfig(**QWEN)
    ),
    "qwen2_5_vl": lambda: modeling_qwen2_5_vl.Qwen2_5_VisionTransformerPretrainedModel._from_config(
        modeling_qwen2_5_vl.Qwen2_5_VLVisionConfig(**QWEN, fullatt_block_indexes=[0])
    ),
}


@pytest.mark.parametrize("name", VISION)
def test_fused_projections_of_vision_models(name):
    torch.manual_seed(3)
    model = VISION[name]().train()
    largen(model)
    model.set_attn_implementation("isentrope")
    clip, attention = isentrope.QKClip(model, tau=0.02), model.blocks[0].attn
    calls = Calls([attention])
    model(torch.randn(16, 12), grid_thw=torch.tensor([[1, 4, 4]]))
    before, values = calls.logits(attention), attention.qkv.weight[64:].clone()
    clip.step()
    torch.testing.assert_close(clip.largest, before.amax((0, 2, 3)))
    gamma = gammas(clip, "blocks.0.attn", 0.02).float()
    assert (gamma < 1).any() and torch.equal(attention.qkv.weight[64:], values)
    torch.testing.assert_close(calls.logits(attention), gamma[:, None, None] * before)


class StrangeAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)


def test_attention_with_unknown_projections_is_named():
    model = nn.ModuleDict({"known": nn.MultiheadAttention(32, 4), "tower": nn.Sequential(StrangeAttention())})
    with pytest.warns(UserWarning, match=r"projections of tower.0 \(StrangeAttention\) are not known"):
        isentrope.QKClip(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for config in (hf.LlamaConfig(**GQA), CAUSAL["gpt2"](), hf.MiniMaxConfig(**GQA, layer_types=["linear_attention", "full_attention"])):
            isentrope.QKClip(hf.AutoModelForCausalLM.from_config(config))


@pytest.mark.parametrize("implementation", ["sdpa", pytest.param("isentrope", marks=pytest.mark.long)])
def test_the_trainer_clips(tmp_path, implementation):
    model, clipping = tiny_model.model(implementation, sharper=40), qk_clip.callback(tau=1.0)
    options = {"max_steps": 3, "gradient_accumulation_steps": 2, "logging_steps": 1, "learning_rate": 1e-4}
    trainer = tiny_model.tiny_trainer(model, tmp_path, clipping, **options)
    trainer.train()
    logged = [entry["qk_clip/max_logit"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(logged) == 3 and logged[0] > 50 and max(logged[1:]) < 3, logged
    assert clipping.clip.clipped.max() >= 1
    first = clipping.clip
    tiny_model.sharpen(model, 10)
    trainer.train()  # a second training clips too
    assert clipping.clip is not first and clipping.clip.clipped.max() >= 1 and clipping.clip.largest.max() < 3
