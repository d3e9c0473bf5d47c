// ModelRule: what a model's scores are and what they are scaled by. A scale rule for the products
// q.k; one for their cosines; or either times a factor that every head of every layer learns.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "isentrope/scale_rule.h"

namespace isentrope::lab {

struct ModelRule {
  ScaleRule rule{};
  bool learned = false;  // the factors start at 1
  bool unit = false;     // queries and keys are made of length 1: scores are cosines

  // "standard", "unit(cosine(tau=30))", "learned(ssmax(s=0.43,b=0))", "learned(unit(...))":
  // parse(text()) == *this.
  [[nodiscard]] std::string text() const;
  // Throws Error as ScaleRule::parse does.
  [[nodiscard]] static ModelRule parse(std::string_view text);

  bool operator==(const ModelRule&) const = default;
};

// The standard scale, and the entropy-invariant one of the field's training length.
[[nodiscard]] std::vector<ModelRule> default_rules();

}  // namespace isentrope::lab
