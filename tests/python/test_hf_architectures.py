"""Families whose attention or mask is unusual give the eager attention's results, or an error that names the argument."""

import pytest
import torch
import transformers as hf
from families import SIZES

import isentrope.hf
from isentrope.hf.architectures import check_arguments

SPARSE = SIZES | dict(
    moe_intermediate_size=16, num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8,
    v_head_dim=16, head_dim=8, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, index_topk=4,
    index_head_dim=16, index_n_heads=2, mlp_layer_types=["dense", "sparse"], layer_types=["indexed_attention"] * 2,
)  # fmt: skip
PAIR = dict(
    vocab_size=61, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=48, decoder_ffn_dim=48, dropout=0.0, attention_dropout=0.0, max_position_embeddings=64, pad_token_id=0,
    bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
)  # fmt: skip
ENCODER = SIZES | dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
VISION = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4, image_size=16, patch_size=8)

FAMILIES = {
    "deepseek_v32": lambda: hf.DeepseekV32Config(**SPARSE),
    "glm_moe_dsa": lambda: hf.GlmMoeDsaConfig(**SPARSE),
    "axk2": lambda: hf.AXK2Config(**SPARSE, gated_norm_rank=4),
    "hy_v4": lambda: hf.HYV4Config(**SPARSE, indexer_types=["full", "shared"], hc_mult=2),
    "deepseek_v4": lambda: hf.DeepseekV4Config(
        **SIZES | dict(num_hidden_layers=3), moe_intermediate_size=16, num_key_value_heads=1, head_dim=16, q_lora_rank=16,
        n_routed_experts=4, num_experts_per_tok=2, sliding_window=6, o_groups=2, o_lora_rank=8, index_n_heads=2,
        index_head_dim=16, index_topk=2, hc_mult=2, mlp_layer_types=["moe"] * 3,
        layer_types=["sliding_attention", "heavily_compressed_attention", "compressed_sparse_attention"],
        compress_rates={"compressed_sparse_attention": 2, "heavily_compressed_attention": 4},
    ),
    "nllb_moe": lambda: hf.NllbMoeConfig(**PAIR, num_experts=2, encoder_sparse_step=0, decoder_sparse_step=0),
    "bigbird_pegasus": lambda: hf.BigBirdPegasusConfig(**PAIR, attention_type="original_full"),
    "pegasus_x": lambda: hf.PegasusXConfig(**PAIR, num_global_tokens=4, block_size=4),
    "splinter": lambda: hf.SplinterConfig(**ENCODER),
}  # fmt: skip


def sharpened(name):
    """Two models with the same weights, eager and isentrope, whose queries are large enough for masks to matter."""
    models = []
    for implementation in ("eager", "isentrope"):
        torch.manual_seed(3)
        model = hf.AutoModel.from_config(FAMILIES[name](), attn_implementation=implementation).eval()
        with torch.no_grad():
            for parameter in (p for n, p in model.named_parameters() if "norm" not in n and p.dim() > 1):
                parameter.normal_(0, 0.3)
        models.append(model)
    models[1].load_state_dict(models[0].state_dict())
    return models


def outputs(model, mask):
    torch.manual_seed(4)
    inputs = {"input_ids": torch.randint(3, 61, (2, 12)), "attention_mask": mask}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.randint(3, 61, (2, 9))
    with torch.no_grad():
        return model(**inputs).last_hidden_state


@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("name", FAMILIES)
def test_outputs_are_those_of_eager(name, side):
    mask = torch.ones(2, 12, dtype=torch.long)
    if side != "none":
        mask[1, slice(5) if side == "left" else slice(-5, None)] = 0
    eager, ours = sharpened(name)
    want, got = outputs(eager, mask), outputs(ours, mask)
    if not ours.config.is_encoder_decoder:
        want, got = want[mask.bool()], got[mask.bool()]
    torch.testing.assert_close(got, want, rtol=0, atol=2e-5 * want.abs().max().item())


def test_a_fixed_table_of_attentions_is_refused_when_it_is_set():
    config = hf.GitConfig(**ENCODER, vision_config=VISION)
    with pytest.raises(ValueError, match='GitModel must be one of eager; got .isentrope.*attn_implementation="eager"'):
        hf.AutoModel.from_config(config, attn_implementation="isentrope")


def test_support_counts_the_chosen_keys():
    _, ours = sharpened("deepseek_v32")
    with isentrope.hf.record("support") as records:
        outputs(ours, torch.ones(2, 12, dtype=torch.long))
    assert [r.statistics.support.max().item() for r in records] == [4, 4]


class Sparse(torch.nn.Module):
    def forward(self, attend, **kwargs):
        return attend(self, block_indices=kwargs.pop("chosen"), **kwargs)


def test_an_argument_that_the_module_names_is_refused():
    def attend(module, **arguments):
        check_arguments(module, arguments)

    Sparse()(attend, chosen=None, shift_labels=torch.zeros(1), output_attentions=False)
    with pytest.raises(ValueError, match='of Sparse .*block_indices=.*attn_implementation="eager"'):
        Sparse()(attend, chosen=torch.zeros(1))


def test_block_indices_of_minimax_m3_are_refused_by_name():
    from transformers.models.minimax_m3_vl.modeling_minimax_m3_vl import MiniMaxM3VLAttention as Attention

    with pytest.raises(ValueError, match="MiniMaxM3VLAttention .*block_indices="):
        check_arguments(Attention.__new__(Attention), {"block_indices": torch.zeros(1)})
