// The arguments of a rule as text, one by one: what text() joins and the JSON form keeps apart.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "isentrope/scale_rule.h"

namespace isentrope {

struct NamedText {
  std::string_view name;
  std::string value;  // "512", "[0.5,1]", "position", "true"
};

// "visible", "position", "total", "fixed".
[[nodiscard]] std::string_view source_name(LengthSource source);

// In the order of the catalogue; the length policy and flags follow, where they are not the rule's
// own.
[[nodiscard]] std::vector<NamedText> argument_texts(const ScaleRule::Term& term);

}  // namespace isentrope
