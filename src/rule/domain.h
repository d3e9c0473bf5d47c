// The domains of a rule's arguments. Every check throws Error, which says what is required and what
// was got.
#pragma once

#include <string>
#include <string_view>

#include "isentrope/rule_catalogue.h"
#include "isentrope/scale_form.h"

namespace isentrope {

// "[scale_rule] REQUIRED; got GOT".
[[noreturn]] void reject(const std::string& required, const std::string& got);

// In [low, high], or (low, high] when open; NaN never is.
void require(std::string_view name, double value, double low, double high, bool open = false);
void check_argument(const RuleParameter& parameter, const PerHead& values);
void check_table(const PerHead& n, const PerHead& factor);
void check_rows(const PerHead& lambda, double heads);
void check_closed_form(const ClosedForm& form);
// Per-head arguments of one rule must agree on the number of heads.
void check_heads(const ClosedForm& form);
void check_length(const LengthPolicy& policy);

}  // namespace isentrope
