// Rules as JSON, and the rule that the config.json of a Hugging Face model implies.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "isentrope/scale_rule.h"

namespace isentrope {

// Returns the rule as JSON: {"rule": "entropy_invariant", "base": 512, "length": "visible"}.
// Numbers per head are arrays, infinities are "inf" and "-inf"; a product is {"product": [RULE,
// RULE]}. The length that a rule counts is always written. scale_rule_from_json(to_json(rule))
// equals rule.
[[nodiscard]] std::string to_json(const ScaleRule& rule);

// Parses the output of to_json(). Defaults may be omitted; a string with the text form, such as
// "logn(4096)", is accepted. Throws Error that names what is wrong.
[[nodiscard]] ScaleRule scale_rule_from_json(std::string_view json);

// Scale of a model's attention, as its config.json describes it.
struct ModelScale {
  // Whether the family is one of those whose code was read for this table. If not, `rule` is what
  // the keys suggest, and the model may scale differently.
  bool known = false;
  std::string model_type;          // of the language model; "" when the file does not say
  ScaleRule rule;                  // of the layers named below
  ScaleRule elsewhere;             // of all other layers
  std::string layers;              // "all", "without rotary embedding", "global"
  std::int64_t dim = 0;            // query-key dimension; 0 when the file does not say
  double soft_cap = 0;             // 0 when there is none
  std::vector<std::string> keys;   // the keys that were used, such as "rope_scaling.factor"
  std::vector<std::string> notes;  // for the reader
};

// Returns the scale that the config.json of a model implies. Families are known by `model_type`;
// the rules of Llama 4, Ministral 3, Qwen, Qwen2.5-1M, Phi-3, YaRN, DeepSeek, Grok and Inkling by
// their keys. YaRN and LongRoPE act on the rotary dimensions only, so the rule is exact if those
// are all dimensions. Throws Error if the text is not a JSON object, or if a value is outside its
// domain.
[[nodiscard]] ModelScale scale_of_config(std::string_view config_json);

}  // namespace isentrope
