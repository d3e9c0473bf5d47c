"""Small models for the common tests in transformers' source distribution."""

import os
import unittest

import torch
import transformers

from .generation.test_utils import GenerationTesterMixin
from .test_modeling_common import ModelTesterMixin, floats_tensor, ids_tensor, random_attention_mask

SIZES = dict(
    vocab_size=99, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, pad_token_id=0,
    attention_dropout=0.1,
)  # fmt: skip
GROUPED = SIZES | dict(num_key_value_heads=2, head_dim=8, max_position_embeddings=64)


class TextTester:
    batch_size, seq_length, is_training = 13, 7, True
    hidden_size, num_hidden_layers, num_attention_heads = 32, 2, 4

    def __init__(self, config, options):
        self.config, self.options = config, options

    def get_config(self):
        return self.config(**self.options)

    def prepare_config_and_inputs_for_common(self):
        shape = self.batch_size, self.seq_length
        return self.get_config(), {"input_ids": ids_tensor(shape, 99), "attention_mask": random_attention_mask(shape)}


class SpeechTester(TextTester):
    encoder_seq_length = key_length = 30
    decoder_seq_length = 7

    def prepare_config_and_inputs_for_common(self):
        ids = ids_tensor((self.batch_size, self.seq_length), 99).clamp(3)
        features = floats_tensor((self.batch_size, 80, 60))
        inputs = {"input_features": features, "decoder_input_ids": ids, "decoder_attention_mask": torch.ones_like(ids)}
        return self.get_config(), inputs


def common(config, classes, options, tester=TextTester, mixins=(GenerationTesterMixin,), **members):
    def set_up(self):
        self.model_tester = tester(getattr(transformers, config), options)

    members |= {"all_model_classes": tuple(getattr(transformers, name) for name in classes), "setUp": set_up}
    return type(f"{classes[0]}Test", (ModelTesterMixin, *mixins, unittest.TestCase), members)


def _generates_in_training(self):
    """Generates with dropout active, as in a model without eval()."""
    config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
    model = transformers.WhisperForConditionalGeneration(config)
    model.generation_config.lang_to_id, model.generation_config.task_to_id = {"<|en|>": 1}, {"transcribe": 2}
    for language in ("en", "<|en|>", "English", ["en"] * self.model_tester.batch_size):
        model.generate(inputs["input_features"], language=language, max_new_tokens=4)


def _with_labels(self, inputs, model_class, return_labels=False):
    inputs = ModelTesterMixin._prepare_for_class(self, inputs, model_class)
    generates = model_class is transformers.WhisperForConditionalGeneration
    return inputs | ({"labels": inputs["decoder_input_ids"]} if return_labels and generates else {})


def _packed_is_padded(self):
    """Requires that packed documents, separated by their positions, give the logits of a padded batch."""
    config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
    ids, lengths = inputs["input_ids"][:3], (7, 3, 5)
    model = self.all_model_classes[-1](config).eval()
    mask = torch.stack([torch.arange(7) < n for n in lengths]).long()
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    with torch.no_grad():
        padded = model(ids, attention_mask=mask, use_cache=False).logits[mask.bool()]
        packed = model(ids[mask.bool()][None], position_ids=positions, use_cache=False).logits[0]
    torch.testing.assert_close(packed, padded, rtol=1e-4, atol=1e-5)


PACKED = {"test_packed_documents_are_padded_documents": _packed_is_padded}
LlamaTest = common("LlamaConfig", ["LlamaModel", "LlamaForCausalLM"], GROUPED, **PACKED)
MistralTest = common("MistralConfig", ["MistralModel", "MistralForCausalLM"], GROUPED | {"sliding_window": 4}, **PACKED)
Gemma2Test = common("Gemma2Config", ["Gemma2Model", "Gemma2ForCausalLM"], GROUPED | {"sliding_window": 4}, **PACKED)
# This model has no sdpa, so the operator replaces eager attention. It passes no positions to its masks (transformers
# 5.18), so packed documents see each other without the operator too.
GptOssTest = common(
    "GptOssConfig", ["GptOssModel", "GptOssForCausalLM"],
    GROUPED | {"sliding_window": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
               "attn_implementation": "isentrope" if "ISENTROPE_IN_PLACE_OF" in os.environ else "eager"},
    **PACKED, test_all_params_have_gradient=False,
    # Requests attentions before it switches to eager attention, which alone returns them.
    test_retain_grad_hidden_states_attentions=None,
)  # fmt: skip
BERT = SIZES | {"attention_probs_dropout_prob": 0.1, "max_position_embeddings": 64}
BertTest = common("BertConfig", ["BertModel", "BertForMaskedLM"], BERT, mixins=())
WhisperTest = common(
    "WhisperConfig", ["WhisperModel", "WhisperForConditionalGeneration"],
    dict(vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
         decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=32, max_source_positions=30,
         max_target_positions=64, num_mel_bins=80, pad_token_id=0, bos_token_id=0, eos_token_id=2,
         decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None, dropout=0.1,
         attention_dropout=0.1),
    SpeechTester, is_encoder_decoder=True, _prepare_for_class=_with_labels,
    test_generate_in_training_mode=_generates_in_training,
    # These tests expect input_ids, which Whisper calls decoder_input_ids; its own tests override them.
    test_resize_embeddings_untied=None, test_resize_tokens_embeddings=None,
)  # fmt: skip
