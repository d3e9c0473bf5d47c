// Chooses the rule of a model from the keys of its config.json, family by family.

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "isentrope/config/scale_rule_json.h"
#include "isentrope/error.h"
#include "src/config/config_keys.h"
#include "src/config/family_rules.h"

namespace isentrope {
namespace {

// Keys of objects that hold the language model in a model of parts; one may hold another.
constexpr std::array<const char*, 6> kLanguageParts = {
    "text_config", "thinker_config", "vlm_config", "llm_config", "language_config", "decoder"};

constexpr std::array<std::string_view, 3> kNotFinite = {"-Infinity", "Infinity", "NaN"};

double yarn_attention(double factor, double mscale) {
  return factor <= 1 ? 1 : 1 + 0.1 * mscale * std::log(factor);
}

// Whether YaRN's mscale multiplies the softmax scale too, not only the rotary dimensions.
bool softmax_mscale(const Config& config, std::optional<FamilyScale> family,
                    const std::string& type) {
  if (!family) return type.starts_with("deepseek") || config.has("kv_lora_rank");
  return family == FamilyScale::mscale || family == FamilyScale::mistral_large_4 ||
         type == "longcat_flash";
}

// Returns the factor of stretched rotary embeddings on the logit: the square of that on q and k.
std::optional<ScaleRule> rope_rule(const Config& config, const Config& rope,
                                   std::optional<FamilyScale> family, ModelScale& model) {
  const std::string type = rope.text(rope.has("rope_type") ? "rope_type" : "type");
  if (type != "yarn" && type != "longrope" && type != "su") return {};
  rope.note(rope.has("rope_type") ? "rope_type" : "type");
  model.notes.emplace_back("acts on the rotary dimensions alone");
  if (const auto mscale =
          family == FamilyScale::phimoe ? rope.number("long_mscale") : std::nullopt) {
    model.notes.emplace_back("inputs within the original length take short_mscale instead");
    return ScaleRule::scaled({*mscale * *mscale});
  }
  const double factor = rope.number("factor").value_or(1);
  const auto mscale = rope.number("mscale"), all_dim = rope.number("mscale_all_dim");
  const bool on_softmax =
      softmax_mscale(config, family, model.model_type) && all_dim.value_or(0) != 0;
  if (const auto attention = rope.number("attention_factor")) {
    const ScaleRule rotary = ScaleRule::scaled({*attention * *attention});
    return on_softmax ? rotary * ScaleRule::yarn_mscale(factor, all_dim) : rotary;
  }
  const auto original = rope.has("original_max_position_embeddings")
                            ? rope.number("original_max_position_embeddings")
                            : config.number("original_max_position_embeddings");
  if (type != "yarn") {
    const auto target = config.number("max_position_embeddings");
    return ScaleRule::longrope(original.value_or(4096), target.value_or(original.value_or(4096)));
  }
  if (mscale && all_dim && *mscale != 0 && *all_dim != 0) {
    // The rotary part is scaled by the ratio, DeepSeek's softmax scale by the square of the second.
    const double ratio = yarn_attention(factor, *mscale) / yarn_attention(factor, *all_dim);
    const ScaleRule rotary = ScaleRule::scaled({ratio * ratio});
    if (!on_softmax) return ratio == 1 ? ScaleRule::standard() : rotary;
    if (ratio != 1)
      model.notes.emplace_back(
          "the rotary dimensions have another factor: mscale / mscale_all_dim, squared");
    return ScaleRule::yarn_mscale(factor, all_dim);
  }
  if (on_softmax) return ScaleRule::yarn_mscale(factor) * ScaleRule::yarn_mscale(factor, all_dim);
  // transformers ignores an mscale without mscale_all_dim; other families' code may not.
  const bool counts = !family && mscale.value_or(0) != 0;
  return ScaleRule::yarn_mscale(factor, counts ? mscale : std::nullopt);
}

// Returns the rule that corrects for length, as the families name it.
std::optional<ScaleRule> length_rule(const Config& config, const Config& rope,
                                     std::optional<FamilyScale> family, ModelScale& model) {
  if (family) {
    if (const auto rule = family_length_rule(config, *family, model)) return rule;
  }
  const bool tuned =
      family == FamilyScale::tuned_temperature && !config.has("attn_temperature_tuning");
  if (tuned) note_type(config, model);
  if (tuned || config.flag("attn_temperature_tuning")) {
    model.layers = "without rotary embedding";
    return ScaleRule::attn_temperature_tuning(config.number("floor_scale"),
                                              config.number("attn_scale"));
  }
  for (const Config& place : {rope, config}) {
    if (const auto beta = place.number("llama_4_scaling_beta"))
      return ScaleRule::llama_4_scaling(beta, place.number("original_max_position_embeddings"));
  }
  if (config.flag("use_logn_attn")) {
    model.notes.emplace_back("the reference applies it beyond seq_length and not in training");
    return ScaleRule::logn(config.number("seq_length"));
  }
  for (const char* key : {"attn_temperature_len", "xai_temperature_len"}) {
    if (const auto length = config.number(key); length && *length > 0)
      return ScaleRule::xai_temperature(length);
  }
  if (const auto floor = config.number("log_scaling_n_floor")) {
    model.layers = "global";
    model.elsewhere = ScaleRule::inverse_dim();
    return ScaleRule::log_scaling(floor, config.number("log_scaling_alpha"));
  }
  const Config chunks = config.part("dual_chunk_attention_config");
  if (const auto original = chunks.number("original_max_position_embeddings"))
    return ScaleRule::dual_chunk(original);
  return {};
}

// Returns the rule that the keys of an unknown family suggest.
std::optional<ScaleRule> suggested_rule(const Config& config) {
  if (const auto scalar = config.number("query_pre_attn_scalar"))
    return ScaleRule::query_pre_attn_scalar(scalar);
  if (const auto multiplier = config.number("attention_multiplier"))
    return ScaleRule::constant(*multiplier);
  return {};
}

std::int64_t dim_of(const Config& config) {
  const auto whole_number = [&](const std::string& key) {
    if (config.is_list(key)) return std::int64_t{0};  // a number for each stage
    const double value = config.number(key).value_or(0);
    return value >= 1 && value <= 1e7 ? static_cast<std::int64_t>(value) : 0;
  };
  if (const auto rotary = whole_number("qk_rope_head_dim"); rotary > 0)
    return rotary + whole_number("qk_nope_head_dim");
  if (const auto dim = whole_number("head_dim"); dim > 0) return dim;
  const std::int64_t heads = whole_number("num_attention_heads");
  return heads > 0 ? whole_number("hidden_size") / heads : 0;
}

// Returns the text with null for Python's Infinity and NaN, which no deciding key may have.
std::string without_infinities(std::string_view text) {
  std::string json;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') quoted = !quoted;
    const std::string_view rest = text.substr(at);
    const auto name =
        quoted ? kNotFinite.end() : std::ranges::find_if(kNotFinite, [&](std::string_view n) {
          return rest.starts_with(n);
        });
    if (name != kNotFinite.end()) {
      json += "null";
      at += name->size() - 1;
      continue;
    }
    json += text[at];
    if (quoted && text[at] == '\\' && at + 1 < text.size()) json += text[++at];
  }
  return json;
}

// Returns the language model's keys, and sets model_type to the innermost one.
Config language_config(const Json& json, ModelScale& model) {
  Config config(json, "", model.keys);
  while (true) {
    if (std::string type = config.text("model_type"); !type.empty())
      model.model_type = std::move(type);
    const auto* const key = std::ranges::find_if(
        kLanguageParts, [&](const char* name) { return config.is_object(name); });
    if (key == kLanguageParts.end()) return config;
    config = config.part(*key);
  }
}

}  // namespace

ModelScale scale_of_config(std::string_view text) {
  const Json json = parse_json("scale_of_config", without_infinities(text));
  if (!json.is_object())
    throw Error("[scale_of_config] a config must be an object; got " + shortened(json));
  ModelScale model;
  model.layers = "all";
  const Config config = language_config(json, model);
  std::vector<std::string> width_keys;
  model.dim = dim_of(config.reporting_to(width_keys));
  const std::optional<FamilyScale> family = family_scale(model.model_type);
  model.known = family.has_value();
  const Config rope =
      config.part(config.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  const bool per_layer = rope.has("full_attention");

  const auto base = family ? family_rule(config, *family, model) : suggested_rule(config);
  const auto length = length_rule(config, rope, family, model);
  const auto rotary =
      rope_rule(config, per_layer ? rope.part("full_attention") : rope, family, model);
  std::optional<ScaleRule> product;
  for (const auto& rule : {base, length, rotary}) {
    if (rule && *rule != ScaleRule::standard()) product = product ? *product * *rule : *rule;
  }
  model.rule = product.value_or(ScaleRule::standard());
  if (per_layer && rotary && model.layers == "all") {
    model.layers = "global";
    model.elsewhere = base.value_or(ScaleRule::standard());
  }
  if (model.layers == "all") model.elsewhere = model.rule;
  for (const char* key : {"attn_logit_softcapping", "attn_logit_softcap"}) {
    if (const auto cap = config.number(key)) model.soft_cap = *cap;
  }
  return model;
}

}  // namespace isentrope
