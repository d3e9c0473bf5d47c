"""Small random models of transformers' families, with tokens and padding."""

import torch
import transformers as hf

import isentrope.hf  # noqa: F401, registers the attention in transformers

SIZES = dict(vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)  # fmt: skip
GQA = SIZES | {"num_key_value_heads": 2, "head_dim": 8}

CAUSAL = {
    "llama": lambda: hf.LlamaConfig(**GQA),
    "mistral": lambda: hf.MistralConfig(**GQA, sliding_window=5),
    "qwen3": lambda: hf.Qwen3Config(**GQA),
    "gemma2": lambda: hf.Gemma2Config(**GQA, query_pre_attn_scalar=12, sliding_window=5, attn_logit_softcapping=2.0),
    "gemma3": lambda: hf.Gemma3TextConfig(**GQA, query_pre_attn_scalar=12, sliding_window=5),
    "gpt_oss": lambda: hf.GptOssConfig(**GQA, num_local_experts=2, num_experts_per_tok=1, sliding_window=5),
    "gpt2": lambda: hf.GPT2Config(vocab_size=61, n_embd=32, n_layer=2, n_head=4, n_positions=64, attn_pdrop=0.0,
                                  resid_pdrop=0.0, embd_pdrop=0.0, bos_token_id=1, eos_token_id=2, pad_token_id=0),
    "gpt_neox": lambda: hf.GPTNeoXConfig(**SIZES),
}  # fmt: skip
ENCODERS = {
    "bert": lambda: (hf.BertConfig(**SIZES, attention_probs_dropout_prob=0.0), hf.BertModel),
    "modernbert": lambda: (hf.ModernBertConfig(**SIZES, local_attention=6, cls_token_id=1, sep_token_id=2),
                           hf.ModernBertModel),
    "t5": lambda: (hf.T5Config(vocab_size=61, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
                               dropout_rate=0.0), hf.T5EncoderModel),
}  # fmt: skip
OTHERS = {  # whose rows see chunks, and a prefix
    "llama4": lambda: (hf.Llama4TextConfig(**GQA, num_local_experts=2, attention_chunk_size=5, no_rope_layers=[1, 0]),
                       hf.Llama4ForCausalLM),
    "paligemma": lambda: (hf.PaliGemmaConfig(
        text_config=dict(model_type="gemma", **GQA), image_token_id=60,
        vision_config=dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
                           image_size=28, patch_size=14, projection_dim=32)), hf.PaliGemmaForConditionalGeneration),
}  # fmt: skip
EAGER = {"gemma2", "gpt_oss", *OTHERS}  # sdpa supports neither sinks nor soft-caps


def model_of(name, implementation):
    """Returns a model with random weights, the same under every attention."""
    torch.manual_seed(5)
    if name in CAUSAL:
        return hf.AutoModelForCausalLM.from_config(CAUSAL[name](), attn_implementation=implementation).eval()
    config, kind = (ENCODERS | OTHERS)[name]()
    return kind._from_config(config, attn_implementation=implementation).eval()


def twins(name):
    """Returns the model with the library's own attention, and with Isentrope's."""
    models = [model_of(name, implementation) for implementation in ("eager" if name in EAGER else "sdpa", "isentrope")]
    for module in models[0].modules():
        if hasattr(module, "sinks"):
            torch.nn.init.normal_(module.sinks)
    models[1].load_state_dict(models[0].state_dict())
    assert models[1].config._attn_implementation == "isentrope"
    return models


def tokens(batch=2, length=12):
    return torch.randint(3, 61, (batch, length))


def padding(side):
    mask = torch.ones(2, 12, dtype=torch.long)
    if side == "left":
        mask[1, :5] = 0
    if side == "right":
        mask[1, -5:] = 0
    return mask


def logits(model, **inputs):
    with torch.no_grad():
        result = model(**inputs)
    return result.logits if hasattr(result, "logits") else result.last_hidden_state
