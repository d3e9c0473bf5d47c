"""kvpress's ObservedAttentionPress by `isentrope.received`, in the environment of kvpress (see judge_keys.py).

    kvpress_case.py "same indices"   a prompt of 4,096 tokens keeps what it keeps with eager

    kvpress_case.py "under AdaKV"    the press runs under AdaKVPress, which refuses eager
"""

import importlib.util
import sys
from pathlib import Path

import torch
import transformers
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

import isentrope
from case import tiny_llama, without_init

FOLDER = Path(importlib.util.find_spec("kvpress").submodule_search_locations[0]).parent
without_init(FOLDER, "kvpress", "kvpress.presses")

from kvpress.attention_patch import patch_attention_functions  # noqa: E402
from kvpress.presses.adakv_press import AdaKVPress  # noqa: E402
from kvpress.presses.observed_attention_press import ObservedAttentionPress  # noqa: E402
from kvpress.utils import get_prerope_query_states  # noqa: E402

TOKENS = 4096


class ReceivedPress(ObservedAttentionPress):
    """The same scores without a matrix of weights."""

    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        assert attentions is None
        cos, sin = kwargs["position_embeddings"]
        queries, _ = apply_rotary_pos_emb(get_prerope_query_states(module, hidden_states), keys[:, :1], cos, sin)
        lse = isentrope.attention(queries, keys, values, causal=True, scale=module.scaling, return_stats=("lse",))[1].lse
        received = isentrope.received(queries, keys, lse, heads="key", causal=True, scale=module.scaling)
        return received / torch.arange(keys.shape[2], 0, -1)


def model(attention):
    return tiny_llama(2, attention, 2 * TOKENS)


def kept(press, attention):
    """Returns the keys that a prompt leaves in each layer, sorted."""
    cache = transformers.DynamicCache()
    tokens = torch.randint(1, 61, (1, TOKENS), generator=torch.Generator().manual_seed(1))
    of_model = model(attention)
    with torch.no_grad(), press(of_model):
        of_model(tokens, past_key_values=cache, use_cache=True)
    return [layer.keys for layer in cache.layers]


def same_indices():
    for ours, eager in zip(kept(ReceivedPress(0.5), "sdpa"), kept(ObservedAttentionPress(0.5), "eager")):
        # The press keeps entries in the order of their scores: compared as sets, by their first number.
        assert ours.shape == eager.shape and ours.shape[2] == TOKENS // 2
        torch.testing.assert_close(ours[..., 0].sort().values, eager[..., 0].sort().values, rtol=1e-4, atol=1e-5)


def under_adakv():
    patch_attention_functions()
    of_model, cache = model("sdpa"), transformers.DynamicCache()
    tokens = torch.randint(1, 61, (1, TOKENS), generator=torch.Generator().manual_seed(1))
    with torch.no_grad(), AdaKVPress(ReceivedPress(0.5))(of_model):
        of_model(tokens, past_key_values=cache, use_cache=True)
        masked = [layer.self_attn.masked_key_indices for layer in of_model.model.layers]
        logits = of_model(tokens[:, -1:], past_key_values=cache, use_cache=True).logits
    assert all(len(indices[0]) == 2 * TOKENS // 2 for indices in masked) and logits.isfinite().all()


if __name__ == "__main__":
    {"same indices": same_indices, "under AdaKV": under_adakv}[sys.argv[1]]()
