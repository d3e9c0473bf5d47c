#include "src/config/family_rules.h"

#include <cmath>

namespace isentrope {
namespace {

// The number of terms that share DeBERTa's scale: content, and position to content or back.
double disentangled_terms(const Config& config) {
  double terms = 1;
  for (const char* term : {"c2p", "p2c"}) terms += config.mentions("pos_att_type", term) ? 1 : 0;
  return terms;
}

// Returns the number under `key`, or the family's own default if the file has none.
double number_or(const Config& config, const std::string& key, double otherwise,
                 ModelScale& model) {
  const auto number = config.number(key);
  if (!number) note_type(config, model);
  return number.value_or(otherwise);
}

// Returns the rule of a family that multiplies q by a constant derived from its ranks.
std::optional<ScaleRule> lora_rule(const Config& config, ModelScale& model) {
  const auto width = config.number("hidden_size"), rank = config.number("q_lora_rank");
  if (!width || !rank) return {};
  model.notes.emplace_back(
      "the dimensions without rotary embedding are also multiplied by "
      "sqrt(hidden_size / kv_lora_rank)");
  return ScaleRule::scaled({std::sqrt(*width / *rank)});
}

// Returns the rule set by GPT-2's flags.
std::optional<ScaleRule> flagged_rule(const Config& config, ModelScale& model) {
  if (config.flag("scale_attn_by_inverse_layer_idx"))
    model.notes.emplace_back("layer i, counted from 1, also divides by i");
  if (!config.has("scale_attn_weights") || config.flag("scale_attn_weights")) return {};
  config.note("scale_attn_weights");
  return ScaleRule::constant(1);
}

}  // namespace

void note_type(const Config& config, ModelScale& model) {
  if (config.text("model_type").empty()) {
    model.keys.emplace_back("model_type");
  } else {
    config.note("model_type");
  }
}

std::optional<ScaleRule> family_rule(const Config& config, FamilyScale family, ModelScale& model) {
  const std::string& type = model.model_type;
  switch (family) {
    case FamilyScale::one:
      note_type(config, model);
      return ScaleRule::constant(1);
    case FamilyScale::query_pre_attn_scalar:
      if (type.starts_with("step3p") && !config.has("query_pre_attn_scalar")) return {};
      return ScaleRule::query_pre_attn_scalar(
          number_or(config, "query_pre_attn_scalar", 256, model));
    case FamilyScale::attention_multiplier:
      if (type == "hyperclovax" && !config.has("attention_multiplier")) return {};
      return ScaleRule::constant(number_or(config, "attention_multiplier",
                                           type.starts_with("granite_docling") ? 0.015625 : 1,
                                           model));
    case FamilyScale::key_multiplier:
      return ScaleRule::scaled({number_or(config, "key_multiplier", 1, model)});
    case FamilyScale::qk_scale_factor:
      return ScaleRule::scaled(
          {number_or(config, "qk_scale_factor",
                     type.starts_with("muse_spark") ? 5.4730064863875 : 3.87, model)});
    case FamilyScale::attn_softmax_scale:
      if (const auto scale = config.part("attn_config").number("softmax_scale"))
        return ScaleRule::constant(*scale);
      return {};
    case FamilyScale::scale_attn_weights:
      return flagged_rule(config, model);
    case FamilyScale::disentangled:
      config.note("pos_att_type");
      return ScaleRule::scaled({1 / std::sqrt(disentangled_terms(config))});
    case FamilyScale::half_dim:
      note_type(config, model);
      return ScaleRule::scaled({std::sqrt(2.0)});
    case FamilyScale::cosine:
      note_type(config, model);
      model.notes.emplace_back("tau is learned per head; 10 is where training starts");
      return ScaleRule::cosine();
    case FamilyScale::inverse_dim:
      // Layers with a rule by length have this base in that rule.
      if (config.has("log_scaling_n_floor")) return {};
      note_type(config, model);
      return ScaleRule::inverse_dim();
    case FamilyScale::lora_scales:
      return lora_rule(config, model);
    case FamilyScale::standard:
    case FamilyScale::mscale:
    case FamilyScale::tuned_temperature:
    case FamilyScale::beam:
    case FamilyScale::mistral_large_4:
    case FamilyScale::inkling_2:
    case FamilyScale::phimoe:
      return {};
  }
  return {};
}

std::optional<ScaleRule> family_length_rule(const Config& config, FamilyScale family,
                                            ModelScale& model) {
  if (family == FamilyScale::beam) {
    note_type(config, model);
    model.layers = "without rotary embedding";
    return ScaleRule::parse(
        "closed_form(a=1,b=0.00048828125,growth=power,lo=0,rho=0.1,length=position,offset=1)");
  }
  if (family == FamilyScale::mistral_large_4) {
    note_type(config, model);
    model.notes.emplace_back(
        "s and b are learned per head and layer; 0 and 1 are where training starts");
    return ScaleRule::ssmax({0}, {1}).with_length({.source = LengthSource::position, .offset = 1});
  }
  if (family == FamilyScale::inkling_2) {
    note_type(config, model);
    model.layers = "global";
    return ScaleRule::dual_chunk(config.number("log_scaling_n_floor").value_or(128000),
                                 config.number("log_scaling_alpha"))
        .with_length({.source = LengthSource::position, .offset = 1})
        .with_scaled_bias(true);
  }
  return {};
}

}  // namespace isentrope
