// Arguments of a rule as separate texts, which text() joins and the JSON form keeps apart.
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

// Returns arguments in the catalogue's order, then length policy and flags that are no defaults.
[[nodiscard]] std::vector<NamedText> argument_texts(const ScaleRule::Term& term);

}  // namespace isentrope
