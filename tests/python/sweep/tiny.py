"""Tiny configurations of every architecture of transformers, made by one function from its default configuration."""

import re
from typing import Any

from transformers import PretrainedConfig

HEADS, KEY_HEADS, HEAD_DIM, WIDTH, INNER, LAYERS, VOCAB, POSITIONS, WINDOW, IMAGE = 4, 2, 8, 32, 48, 2, 128, 128, 6, 32

# Names of sizes, and their largest value. A size is never enlarged.
SIZES = [(re.compile(names), largest) for names, largest in [
    (r"(.*_)?vocab_size(_per_layer_input)?|vocab_size_.*|.*_vocab", VOCAB),
    (r"(hidden|embed|embedding|model|word_embed_proj|encoder_hidden|decoder_hidden|text_hidden|vision_hidden|attention_hidden|"
     r"projector_hidden|output_hidden|out_hidden|pooler_hidden|backbone_hidden|cross_attention_hidden|audio_hidden|local_hidden|"
     r"hidden_size_global|hidden_size_per_layer|query_hidden)_?(size|dim|dimension)?(_out|_per_layer_input)?|d_model|n_embd|"
     r"embed_dims?|embedding_dim|hidden_dim|dim|width|emb_dim|dim_model|decoder_dim|encoder_dim|d_embed|projection_dim|output_dim|"
     r"q_?former_hidden_size|encoder_embed_dim|decoder_embed_dim|text_embed_dim|image_text_hidden_size|project_dim|input_dim|"
     r"output_size|input_embed_dim|output_proj_dims|lru_width", WIDTH),
    (r".*(intermediate|ffn|feed_forward|feedforward|mlp)_?(size|dim|hidden_size|inner_dim|hidden_dim)|ffn_dim|d_ff|dff|dim_ff|"
     r"d_inner|n_inner|inner_dim|ffn_hidden_size|mlp_dim|intermediate_dim|.*_ffn_dim|dim_feedforward", INNER),
    (r"(.*_)?(num_attention_heads|num_heads|attention_heads|n_heads?|num_head|n_head)|num_attention_head|.*_nhead|.*_n_heads|"
     r"linear_num_(key|value)_heads|attn_heads", HEADS),
    (r"(.*_)?(num_hidden_layers|num_layers|n_layers?|encoder_layers|decoder_layers|num_blocks|depth|layers|num_decoder_layers|"
     r"num_encoder_layers|num_dense_layers)|first_k_dense_replace", LAYERS),
    (r"(global_)?head_dim|attention_head_dim|head_size|d_kv|dim_head|.*_head_dim|kv_channels|d_head|attention_head_size|"
     r"query_pre_attn_scalar", HEAD_DIM),
    (r"q_lora_rank|kv_lora_rank|o_lora_rank|index_head_dim", 16), (r"index_topk", 4), (r"index_n_heads|index_kpool_.*", 2),
    (r".*(max_position_embeddings|n_positions|max_source_positions|max_target_positions|context_length|max_seq_len|"
     r"max_sequence_length|n_ctx|seq_length|max_position)", POSITIONS),
    (r"(num|n)_(local_|routed_)?experts|moe_num_experts|num_moe_experts", 4),
    (r"num_experts_per_tok(en)?|moe_topk|moe_k|top_k|num_selected_experts|experts_per_token|moe_top_k", 2),
    (r"n_group|topk_group|num_expert_group", 1),
    (r"sliding_window|attention_window|local_attention|window|attention_chunk_size|window_size|attention_window_size", WINDOW),
    (r"image_size|crop_size|img_size|pretrain_image_size", IMAGE), (r"patch_size", 8), (r"num_mel_bins", 16),
    (r"state_size|mamba_d_state|ssm_state_size|d_state", 8),
]]  # fmt: skip
KEY_HEAD_NAMES = re.compile(r".*num_(key_value|kv)_heads|n_kv_heads|multi_query_group_num")
DROPOUT = re.compile(r".*(dropout|layerdrop|pdrop|drop_path|drop_rate).*|drop_.*rate|.*_drop")
LAYER_LISTS = "layer_types", "layers_block_type", "mlp_layer_types", "block_types", "indexer_types"
LAYER_COUNTS = "num_hidden_layers", "n_layer", "n_layers", "num_layers"
TOKENS = re.compile(r".*(_token_id|_token_index|_token)")
LEFT_OUT = {"transformers_version", "feature_size", "id2label", "label2id", "attn_implementation", "ignore_keys_at_rope_validation"}
KEPT = {"num_feat_extract_layers"}
ROPE = {"rope_type": "default", "rope_theta": 1e4}
MROPE = {"rope_parameters": ROPE | {"mrope_section": [2, 1, 1]}}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_expand": 2, "mamba_n_groups": 1}
MLA = {"qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "kv_lora_rank": 16, "q_lora_rank": 16, "qk_head_dim": 16}
HEAD_DIMS = {"qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "kv_lora_rank": 16}
MOE = {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
       "moe_intermediate_size": 16, "first_k_dense_replace": 1}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16, "partial_rotary_factor": 0.5,
        "mscale_all_dim": 0.5, "mscale": 0.5, "llama_4_scaling_beta": 0.1}  # fmt: skip
SERIES = {"prediction_length": 6, "context_length": 10, "lags_sequence": [1, 2], "num_time_features": 2, "moving_average": 3}
SWIN = {"embed_dim": 16, "hidden_size": 128, "depths": [1] * 4, "num_heads": [2, 2, 4, 4], "window_size": 2, "patch_size": 2, "num_layers": 4}
MIMI = {"num_filters": 8, "upsampling_ratios": [4, 2], "vector_quantization_hidden_dimension": 16, "codebook_dim": 16,
        "codebook_size": 32, "num_quantizers": 8, "num_semantic_quantizers": 1, "upsample_groups": 32}  # fmt: skip
ZAMBA = {"attention_head_dim": 16, "attention_hidden_size": 64, "num_key_value_heads": 4}
CODEC = {"num_filters": 2}  # each stage doubles them
# Values of single families whose sizes belong together in a way of their own, or whose default configuration lacks one.
OWN = {
    "qwen2_vl_text": MROPE, "qwen2_5_vl_text": MROPE, "glm4v_text": MROPE, "glm_image_text": MROPE, "glm_ocr_text": MROPE,
    "paddleocr_vl_text": MROPE, "paddleocr_vl": MROPE, "glmga_text": MROPE,
    "glm4v_moe_text": {"rope_parameters": MROPE["rope_parameters"] | {"mrope_section": [1, 1, 0], "partial_rotary_factor": 0.5}},
    "bamba": MAMBA, "granitemoehybrid": MAMBA | {"layer_types": ["mamba", "attention"]}, "falcon_h1": MAMBA | {"mamba_d_ssm": 64},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 1},
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "attention_layers": ["global", "local"]},
    "deepseek_v2": {"num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}, "gptj": {"rotary_dim": 4}, "codegen": {"rotary_dim": 4},
    "hunyuan_v1_dense": {"head_dim": 8}, "hunyuan_v1_moe": {"head_dim": 8}, "ministral": {"head_dim": 8}, "reformer": {"is_decoder": True},
    "glm5_next_text": {"index_kpool": 2}, "nemotron": {"num_key_value_heads": 2}, "longcat_flash": MLA | {"head_dim": 8}, "dots1": MOE,
    "mistral4": MLA | MOE | {"head_dim": 16, "num_key_value_heads": 4, "rope_parameters": YARN},
    "gemma3n_text": {"activation_sparsity_pattern": None, "num_kv_shared_layers": 0, "laurel_rank": 4},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]}, "laguna": {"num_attention_heads_per_layer": [4, 4]},
    "nemotron_h": {"mamba_num_heads": 8, "mamba_head_dim": 8, "n_groups": 2, "expand": 2}, "xmod": {"default_language": "en_XX"},
    "esm": {"vocab_size": VOCAB, "position_embedding_type": "rotary", "pad_token_id": 1, "mask_token_id": VOCAB - 1},
    "minimax_m3_vl_text": {"layer_types": ["full_attention", "minimax_m3_sparse"], "index_block_size": 3, "index_topk_blocks": 2},
    "informer": SERIES, "autoformer": SERIES, "time_series_transformer": SERIES,
    "mistral_large4_text": HEAD_DIMS | {
        "num_hidden_layers": 3, "kv_source_layers": [0, 0, 2], "indexer_types": ["full", "shared", "full"], "no_rope_layers": [1, 1, 0],
        "layer_types": ["indexed_attention"] * 3, "mlp_layer_types": ["dense", "sparse", "sparse"]},
    "hunyuan_vl_text": {"head_dim": HEAD_DIM} | MROPE,
    "cohere_compass_text": {"rope_parameters": {"full_attention": ROPE}},
    "qwen4_exp_text": {
        "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 4, "indexer_compress_ratio": 2},
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"], "hybrid_layer_ids": [1], "mamba_headdim": 8} | ZAMBA,
    "esmc": {"vocab_size": VOCAB},
    "chameleon": {"vocabulary_map": {"<image>": 100}, "num_key_value_heads": 4},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0}},
    "emu3_text_model": {"vocab_size": VOCAB}, "emu3": {"vocabulary_map": {"<image>": 100}},
    "bros": {"dim_bbox_sinusoid_emb_1d": 2, "dim_bbox_sinusoid_emb_2d": 16, "dim_bbox_projection": 8},
    "lilt": {"hidden_size": 48, "channel_shrink_ratio": 2},
    "qwen2_5_omni_text": MROPE, "qwen3_omni_moe_text": MROPE,
    "zamba": {"num_hidden_layers": 3, "layers_block_type": ["mamba", "hybrid", "hybrid"]} | ZAMBA,
    "neomme": {"rope_parameters": {"full_attention": ROPE | {"partial_rotary_factor": 0.5}, "sliding_attention": ROPE}},
    "swin": SWIN, "swinv2": SWIN, "donut-swin": SWIN, "maskformer-swin": SWIN,
    "mimi": MIMI, "mimi_encoder": MIMI, "mimi_decoder": MIMI,
    "speech_to_text": {"input_feat_per_channel": 16, "conv_channels": 32},
    "siglip_text_model": {"projection_size": WIDTH}, "dia_decoder": {"cross_hidden_size": WIDTH},
    "vibevoice_acoustic_tokenizer": CODEC, "vibevoice_acoustic_tokenizer_encoder": CODEC, "vibevoice_acoustic_tokenizer_decoder": CODEC,
}  # fmt: skip


def tiny(config: PretrainedConfig) -> PretrainedConfig:
    """Returns a configuration of the same kind with two layers, four heads and a width of 32, without dropout.

    Sub-configurations are made tiny too. A layer of each kind is kept where a list names the kinds.
    Raises what the configuration's own class raises if the sizes do not fit together.
    """
    small = {name: _small(name, value, config) for name, value in vars(config).items()
             if not name.startswith("_") and name not in LEFT_OUT}  # fmt: skip
    _fit_layers(small)
    _fit_tokens(small)
    if isinstance(small.get("rope_parameters"), dict):
        small["rope_parameters"] = _fit_rope(small["rope_parameters"], small.get("head_dim") or HEAD_DIM)
    return type(config)(**small | OWN.get(config.model_type, {}))


def _small(name: str, value: Any, config: PretrainedConfig) -> Any:
    if isinstance(value, PretrainedConfig):
        return tiny(value)
    if isinstance(value, float) and DROPOUT.fullmatch(name):
        return 0.0
    if isinstance(value, list) and len(set(map(str, value))) == 1 and isinstance(value[0], int) and name == "intermediate_size":
        return INNER  # one for every layer
    if isinstance(value, (list, tuple)) and name == "image_size":
        return [min(side, IMAGE) for side in value]
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0 or name in KEPT:
        return value
    if KEY_HEAD_NAMES.fullmatch(name):
        heads = (getattr(config, other, None) for other in ("num_attention_heads", "n_heads", "num_heads", "n_head"))
        whole = next((count for count in heads if isinstance(count, int)), value)
        return value if value == 1 else HEADS if value >= whole else KEY_HEADS
    largest = next((largest for names, largest in SIZES if names.fullmatch(name)), value)
    return min(value, largest)


def _fit_layers(small: dict[str, Any]) -> None:
    """Makes the lists of layers as long as there are layers, with each kind at least once."""
    lists = {name: small[name] for name in LAYER_LISTS if isinstance(small.get(name), (list, tuple)) and small[name]}
    kinds = {name: list(dict.fromkeys(values)) for name, values in lists.items()}
    layers = max([LAYERS, *map(len, kinds.values())])
    for name, found in kinds.items():
        small[name] = (found * layers)[:layers]
    for name in LAYER_COUNTS:
        if lists and isinstance(small.get(name), int):
            small[name] = layers


def _fit_tokens(small: dict[str, Any]) -> None:
    """Gives special tokens numbers within the vocabulary, each its own."""
    usual = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    number = VOCAB - 1
    for name, value in small.items():
        if name in usual and isinstance(value, list):
            small[name] = usual[name]
        elif TOKENS.fullmatch(name) and isinstance(value, int) and value >= VOCAB:
            small[name] = usual.get(name, number)
            number -= name not in usual


def _fit_rope(rope: dict[str, Any], head_dim: int) -> dict[str, Any]:
    """Makes the sections of a rotary embedding of several axes add up to half of the head dimension."""
    rope = {name: _fit_rope(value, head_dim) if isinstance(value, dict) else value for name, value in rope.items()}
    if sections := rope.get("mrope_section"):
        part = head_dim // 2 // len(sections)
        rope["mrope_section"] = [head_dim // 2 - part * (len(sections) - 1), *[part] * (len(sections) - 1)]
    return rope
