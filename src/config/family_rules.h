// Families of models whose code was read, by the `model_type` of config.json, and their rules.
#pragma once

#include <optional>
#include <string_view>

#include "isentrope/config/scale_rule_json.h"
#include "src/config/config_keys.h"

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

// Records that the family itself decided.
void note_type(const Config& config, ModelScale& model);

// Returns the scale that replaces or multiplies 1/sqrt(d); empty if 1/sqrt(d) stays.
[[nodiscard]] std::optional<ScaleRule> family_rule(const Config& config, FamilyScale family,
                                                   ModelScale& model);

// Returns the length rule in the family's code; empty if only keys of all families name one.
[[nodiscard]] std::optional<ScaleRule> family_length_rule(const Config& config, FamilyScale family,
                                                          ModelScale& model);

}  // namespace isentrope
