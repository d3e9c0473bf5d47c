#pragma once

#include <optional>

#include "isentrope/config/scale_rule_json.h"
#include "src/config/config_keys.h"
#include "src/config/families.h"

namespace isentrope {

// Records that the family itself decided.
void note_type(const Config& config, ModelScale& model);

// Returns the scale that replaces or multiplies 1/sqrt(d); empty if 1/sqrt(d) stays.
[[nodiscard]] std::optional<ScaleRule> family_rule(const Config& config, FamilyScale family,
                                                   ModelScale& model);

// Returns the length rule in the family's code; empty if only keys of all families name one.
[[nodiscard]] std::optional<ScaleRule> family_length_rule(const Config& config, FamilyScale family,
                                                          ModelScale& model);

}  // namespace isentrope
