"""A prefill of 8192 tokens by models with sliding windows takes the work and memory of direct operator calls."""

import pytest
import torch
from dispatched import Dispatched
from torch.utils._pytree import tree_leaves
from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM
from transformers.models.gemma2 import Gemma2Config
from transformers.models.gpt_oss import GptOssConfig

import isentrope
from isentrope import hf

TOKENS = 8192
SIZES = dict(
    vocab_size=128, hidden_size=256, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=64, max_position_embeddings=TOKENS, attn_implementation=hf.NAME,
)  # fmt: skip
CONFIGS = {
    "gemma2": lambda: Gemma2Config(**SIZES, layer_types=["sliding_attention", "full_attention"], sliding_window=4096),
    "gpt_oss": lambda: GptOssConfig(**SIZES, num_local_experts=2, num_experts_per_tok=1, sliding_window=128),
}


class Work(Dispatched):
    """Records the tensors of Isentrope's calls, and the largest and total bytes that other operations create."""

    def __init__(self):
        super().__init__(self._note)
        self.calls, self.largest, self.bytes = [], 0, 0

    def _note(self, function, args, kwargs, result):
        passed = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        is_isentrope = function.namespace == "isentrope"
        if is_isentrope:
            self.calls.append([x.shape for x in passed])
        inputs = {x.untyped_storage().data_ptr() for x in passed}
        for output in tree_leaves(result):
            if isinstance(output, torch.Tensor) and output.untyped_storage().data_ptr() not in inputs:
                size = output.numel() * output.element_size()
                self.largest = max(self.largest, size)
                self.bytes += 0 if is_isentrope else size


class Comparison:
    """Replaces the attention and its masks, and also calls the operator directly, layer by layer."""

    def __init__(self):
        self.through_model, self.direct = Work(), Work()

    def masks(self, *args, **kwargs):
        with self.through_model:
            return hf.row_mask(*args, **kwargs)

    def attention(self, module, query, key, value, mask, scaling=None, softcap=None, s_aux=None, **kwargs):
        window = kwargs.get("sliding_window")
        with self.through_model:
            result, weights = hf.attention_forward(
                module, query, key, value, mask, scaling=scaling, softcap=softcap, s_aux=s_aux, **kwargs
            )
        with self.direct:
            direct = isentrope.attention(
                query, key, value, scale=scaling, soft_cap=softcap or 0.0, sinks=s_aux, causal=True,
                window_size=(-1 if window is None else window - 1, -1),
            )  # fmt: skip
        torch.testing.assert_close(result, direct.transpose(1, 2))
        return result, weights


@pytest.mark.parametrize("name", CONFIGS)
def test_a_prefill_is_direct_calls_and_makes_no_square(name):
    model = AutoModelForCausalLM.from_config(CONFIGS[name]()).eval()
    ids, mask = torch.randint(128, (1, TOKENS)), torch.ones(1, TOKENS, dtype=torch.long)
    comparison = Comparison()
    with torch.inference_mode():
        with Work() as whole:
            model(ids, attention_mask=mask)
        try:
            AttentionInterface.register(hf.NAME, comparison.attention)
            AttentionMaskInterface.register(hf.NAME, comparison.masks)
            model(ids, attention_mask=mask)
        finally:
            AttentionInterface.register(hf.NAME, hf.attention_forward)
            AttentionMaskInterface.register(hf.NAME, hf.row_mask)
    through_model, direct = comparison.through_model, comparison.direct
    print(name, through_model.bytes, direct.bytes, whole.largest, through_model.calls)
    # Without dense masks: the results check those given as numbers.
    assert len(direct.calls) == 2 and through_model.calls == direct.calls
    assert through_model.bytes <= direct.bytes + 64 * TOKENS  # only a few numbers a token are created besides
    assert whole.largest < TOKENS * TOKENS  # size of a mask of bytes
