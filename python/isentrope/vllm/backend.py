"""vLLM's attention, computed by isentrope's operators: of CPUs, and of GPUs in front of vLLM's class over Triton.

Caches of 8 bits and masks that vary within a step, by request or by image, are left to vLLM.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from vllm.config import get_current_vllm_config
from vllm.logger import init_logger
from vllm.utils.torch_utils import is_quantized_kv_cache
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend, CPUAttentionBackendImpl
from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend, TritonAttentionImpl

from isentrope._core.call import Call
from isentrope._core.library import CHECKED
from isentrope.vllm import recorder
from isentrope.vllm.recorder import Step
from isentrope.vllm.rule import served_rule

logger = init_logger(__name__)
_VARYING_MASKS = ("dynamic_causal", "mm_prefix_range", "rswa_window")


class Attention:
    """One layer, in front of vLLM's own class. Arguments are those of vLLM's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rule = served_rule(get_current_vllm_config().model_config.hf_config, self.scale)
        self.is_encoder = self.attn_type in (AttentionType.ENCODER_ONLY, AttentionType.ENCODER)
        self.is_8_bit = is_quantized_kv_cache(self.kv_cache_dtype)
        if self.is_8_bit:
            logger.warning_once("isentrope leaves attention over a cache of 8 bits, and its scale, to vLLM")

    def forward(
        self, layer: Any, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor,
        attn_metadata: Any, output: Tensor, output_scale: Tensor | None = None,
        output_block_scale: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        if self._is_left_to_vllm(attn_metadata) or output_scale is not None or output_block_scale is not None:
            return super().forward(layer, query, key, value, kv_cache, attn_metadata, output, output_scale, output_block_scale)
        count = attn_metadata.num_actual_tokens
        q = query[:count].transpose(0, 1)[None]
        options = self._options(attn_metadata.causal)
        if self.is_encoder:
            starts = attn_metadata.query_start_loc.long()
            k, v = (x[:count].transpose(0, 1)[None] for x in (key, value))
            if self.alibi_slopes is not None:
                options["bias"] = self._bias(*(torch.arange(count, device=q.device),) * 2)
            result = CHECKED.attention(*Call(q, k, v, cu_seqlens_q=starts, cu_seqlens_k=starts, **options), 0)
        else:
            k, v = self.halves(kv_cache)
            step = Step.of(attn_metadata, k.shape[2])
            if self.alibi_slopes is not None:
                options["bias"] = self._bias(step.positions(), torch.arange(step.table.shape[1] * k.shape[2], device=q.device))
            call, wanted = Call(q, k, v, **options), recorder.wanted()
            result = CHECKED.decode(*call, *step, wanted)
            if wanted:
                recorder.add(layer.layer_name, step, call, result)
        output[:count].view(count, self.num_heads, -1).copy_(result[0][0].transpose(0, 1))
        return output

    def do_kv_cache_update(self, layer: Any, key: Tensor, value: Tensor, kv_cache: Tensor, slot_mapping: Tensor) -> None:
        if self.is_encoder:
            return
        if self.is_8_bit:
            return super().do_kv_cache_update(layer, key, value, kv_cache, slot_mapping)
        rows = (x[: len(slot_mapping)].transpose(0, 1)[None] for x in (key, value))
        CHECKED.write_cache(*rows, *self.halves(kv_cache), slot_mapping.long())

    def _is_left_to_vllm(self, metadata: Any) -> bool:
        if metadata is None or self.is_8_bit or isinstance(metadata.causal, Tensor) or getattr(self, "chunk_lookback", -1) >= 0:
            return True
        return any(getattr(metadata, name, None) is not None for name in _VARYING_MASKS) or getattr(self, "use_alibi_sqrt", False)

    def _options(self, causal: bool) -> dict[str, Any]:
        sides = {"window_left": self.window_left, "window_right": self.window_left if self.is_encoder else -1}
        sinks = None if self.sinks is None else self.sinks.float()
        causal = causal and not self.is_encoder
        return {"rule": self.rule, "causal": 2 * causal, "soft_cap": float(self.logits_soft_cap), "sinks": sinks, **sides}

    def _bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Returns the bias of ALiBi for these positions, [1, heads, queries, keys]."""
        distances = (keys[None, :] - queries[:, None]).float()
        return (self.alibi_slopes.to(keys.device)[:, None, None] * distances)[None]


class CPUAttention(Attention, CPUAttentionBackendImpl):
    @property
    def window_left(self) -> int:
        return self.sliding_window - 1 if self.sliding_window > 0 else -1

    def halves(self, kv_cache: Tensor) -> tuple[Tensor, ...]:
        """Returns keys and values, each [pages, kv_heads, page_size, dim]. A page has all keys of a head before its values."""
        pages, kv_heads, page_size, _ = kv_cache.shape
        return kv_cache.view(pages, kv_heads, 2 * page_size, -1).chunk(2, dim=2)


class CPUBackend(CPUAttentionBackend):
    """vLLM's class with another implementation of its layers."""

    @staticmethod
    def get_impl_cls() -> type[CPUAttention]:
        return CPUAttention


class GPUAttention(Attention, TritonAttentionImpl):
    @property
    def window_left(self) -> int:
        return self.sliding_window[0]

    def halves(self, kv_cache: Tensor) -> tuple[Tensor, ...]:
        """As in CPUAttention. A row has its key before its value."""
        return kv_cache.split(self.head_size, dim=-1)

    def fused_rope_kvcache_supported(self) -> bool:
        return False

    def fused_output_quant_supported(self, quant_key: Any) -> bool:
        return False


class GPUBackend(TritonAttentionBackend):
    """CUSTOM of vLLM's registry, on GPUs."""

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[GPUAttention]:
        return GPUAttention
