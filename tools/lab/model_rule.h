// ModelRule: a scale rule for products q.k or cosines, maybe times a factor that each head learns.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "isentrope/scale_rule.h"

namespace isentrope::lab {

struct ModelRule {
  ScaleRule rule{};
  bool learned = false;  // factors start at 1
  bool unit = false;     // q and k are normalised: scores are cosines

  // Returns "standard", "unit(cosine(tau=30))", "learned(ssmax(s=0.43,b=0))", "learned(unit(...))":
  // parse(text()) == *this.
  [[nodiscard]] std::string text() const;
  // Parses a rule. Throws Error as ScaleRule::parse does.
  [[nodiscard]] static ModelRule parse(std::string_view text);

  bool operator==(const ModelRule&) const = default;
};

// Returns the standard scale, and the entropy-invariant one for the field's usual length of 512.
[[nodiscard]] std::vector<ModelRule> default_rules();

}  // namespace isentrope::lab
