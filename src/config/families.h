// Families of models whose code was read, by the `model_type` of config.json.
#pragma once

#include <optional>
#include <string_view>

namespace isentrope {

// Factor by which a family scales q.k, apart from stretched rotary embeddings.
enum class FamilyScale {
  standard,               // 1/sqrt(d)
  one,                    // 1
  query_pre_attn_scalar,  // 1/sqrt(query_pre_attn_scalar)
  attention_multiplier,   // attention_multiplier
  key_multiplier,         // k times key_multiplier
  qk_scale_factor,        // q times qk_scale_factor
  attn_softmax_scale,     // attn_config.softmax_scale
  scale_attn_weights,     // 1 if scale_attn_weights is false
  disentangled,           // 1/sqrt(d times the number of terms)
  half_dim,               // 1/sqrt(d/2)
  cosine,                 // learned tau
  lora_scales,            // q times sqrt(hidden_size/q_lora_rank)
  mscale,                 // mscale_all_dim scales the softmax, beside the rotary dimensions
  tuned_temperature,      // Llama 4
  beam,
  mistral_large_4,
  inverse_dim,  // 1/d; Inkling
  inkling_2,
  phimoe,  // mscale of longrope as the file has it
};

// Returns how a family scales q.k; empty for a family whose code was not read.
[[nodiscard]] std::optional<FamilyScale> family_scale(std::string_view model_type);

}  // namespace isentrope
