// The rules of families whose code was read.
#pragma once

#include <optional>

#include "config/config_keys.h"
#include "config/families.h"
#include "isentrope/config/scale_rule_json.h"

namespace isentrope {

// Notes that the family itself decided.
void note_type(const Config& config, ModelScale& model);

// The scale that replaces 1/sqrt(d), or multiplies it; empty where 1/sqrt(d) stays.
[[nodiscard]] std::optional<ScaleRule> family_rule(const Config& config, FamilyScale family,
                                                   ModelScale& model);

// The rule by length that the family's code has; empty where only keys that all families share name
// one.
[[nodiscard]] std::optional<ScaleRule> family_length_rule(const Config& config, FamilyScale family,
                                                          ModelScale& model);

}  // namespace isentrope
