// Domains of a rule's arguments. Every check throws Error with the requirement and the value.
#pragma once

#include <string>
#include <string_view>

#include "isentrope/rule_catalogue.h"
#include "isentrope/scale_form.h"

namespace isentrope {

// Throws Error "[scale_rule] REQUIRED; got GOT".
[[noreturn]] void reject(const std::string& required, const std::string& got);

// Requires a value in [low, high], or (low, high] when open; NaN fails.
void require(std::string_view name, double value, double low, double high, bool open = false);
void check_argument(const RuleParameter& parameter, const PerHead& values);
void check_table(const PerHead& n, const PerHead& factor);
void check_rows(const PerHead& lambda, double heads);
void check_closed_form(const ClosedForm& form);
// Requires that the per-head arguments of one rule have the same number of heads.
void check_heads(const ClosedForm& form);
void check_length(const LengthPolicy& policy);

}  // namespace isentrope
