"""A prefill of 8192 tokens by models with sliding windows: time and memory are those of the operator called directly."""

import time

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM
from transformers.models.gemma2 import Gemma2Config
from transformers.models.gpt_oss import GptOssConfig

import isentrope
from isentrope import hf

TOKENS, ROUNDS, AT_MOST = 8192, 7, 1.05
SIZES = dict(
    vocab_size=128, hidden_size=256, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=64, max_position_embeddings=TOKENS, attn_implementation=hf.NAME,
)  # fmt: skip
CONFIGS = {
    "gemma2": lambda: Gemma2Config(**SIZES, layer_types=["sliding_attention", "full_attention"], sliding_window=4096),
    "gpt_oss": lambda: GptOssConfig(**SIZES, num_local_experts=2, num_experts_per_tok=1, sliding_window=128),
}


class LargestTensor(TorchDispatchMode):
    """Bytes of the largest tensor that any operator returned."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.bytes = max(self.bytes, leaf.numel() * leaf.element_size())
        return result


class Clock:
    """Takes the place of the attention and its masks, and calls the operator directly beside them, layer by layer."""

    def __init__(self):
        self.through_model = self.direct = 0.0

    def masks(self, *args, **kwargs):
        start = time.perf_counter()
        result = hf.row_mask(*args, **kwargs)
        self.through_model += time.perf_counter() - start
        return result

    def attention(self, module, query, key, value, mask, scaling=None, softcap=None, s_aux=None, **kwargs):
        window = kwargs.get("sliding_window")
        start = time.perf_counter()
        result, weights = hf.attention_forward(
            module, query, key, value, mask, scaling=scaling, softcap=softcap, s_aux=s_aux, **kwargs
        )
        middle = time.perf_counter()
        direct = isentrope.attention(
            query, key, value, scale=scaling, soft_cap=softcap or 0.0, sinks=s_aux, causal=True,
            window_size=(-1 if window is None else window - 1, -1),
        )  # fmt: skip
        self.direct += time.perf_counter() - middle
        self.through_model += middle - start
        torch.testing.assert_close(result, direct.transpose(1, 2))
        return result, weights


@pytest.mark.parametrize("name", CONFIGS)
def test_a_prefill_takes_the_time_of_direct_calls_and_makes_no_square(name):
    model = AutoModelForCausalLM.from_config(CONFIGS[name]()).eval()
    ids, mask = torch.randint(128, (1, TOKENS)), torch.ones(1, TOKENS, dtype=torch.long)
    clocks = []
    with torch.inference_mode():
        with LargestTensor() as largest:
            model(ids, attention_mask=mask)
        try:
            for _ in range(ROUNDS):
                clocks.append(Clock())
                AttentionInterface.register(hf.NAME, clocks[-1].attention)
                AttentionMaskInterface.register(hf.NAME, clocks[-1].masks)
                model(ids, attention_mask=mask)
        finally:
            AttentionInterface.register(hf.NAME, hf.attention_forward)
            AttentionMaskInterface.register(hf.NAME, hf.row_mask)
    best = min(clocks, key=lambda clock: clock.through_model)
    ratio = min(clock.through_model for clock in clocks) / min(clock.direct for clock in clocks)
    print(f"{name}: {best.through_model:.3f} s through the model, {best.direct:.3f} s directly, ratio {ratio:.3f}, "
          f"largest tensor {largest.bytes / 2**20:.1f} MiB")  # fmt: skip
    assert largest.bytes < TOKENS * TOKENS  # what a mask of bytes would take
    assert ratio <= AT_MOST
