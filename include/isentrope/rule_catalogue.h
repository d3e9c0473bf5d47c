// Every scale rule under its name in the field: parameters, domains, defaults, formula and source.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isentrope/scale_form.h"

namespace isentrope {

enum class ParameterKind {
  number,
  length,    // a number of keys that the rule is tied to, such as the trained length
  per_head,  // one number, or one for each head
  list,      // any number of numbers
  lists,     // such a list for each head in turn, or one for all
  heads,     // the number of heads that have lists
  growth,    // the name of a Growth, kept as its index
};

struct RuleParameter {
  std::string_view name;
  ParameterKind kind;
  double fallback;    // the default; NaN if the argument is required
  double low, high;   // the domain, ends included
  bool open = false;  // the lower end is not included
};

// Builds the closed form from one list of numbers per parameter, all within their domains.
using FormBuilder = ClosedForm (*)(std::span<const PerHead> arguments);

struct RuleInfo {
  std::string_view name;
  std::vector<RuleParameter> parameters;
  std::string_view formula;  // lambda as text, with n the length of the policy
  std::string_view source;   // who ships or derives it
  std::string_view use;      // when to use it
  std::string_view at_one;   // lambda for a row of one key
  std::string_view counts;   // the length n by default, and why: "visible: WHY"; or ""
  FormBuilder form;
};

// Returns all rules, in the order of the documentation.
[[nodiscard]] std::span<const RuleInfo> rule_catalogue();

// Returns the rule of that name; null if there is none.
[[nodiscard]] const RuleInfo* find_rule(std::string_view name);

// Returns the name with every default, such as "entropy_invariant(base=512)"; parameters without a
// default are "...".
[[nodiscard]] std::string signature(const RuleInfo& rule);

// Returns which length n of a rule's form counts, and why: "visible: WHY", or "total: as given" if
// the policy is not the rule's own. Empty if the form or one of its arguments reads no length.
[[nodiscard]] std::string counted(const RuleInfo& rule, const ClosedForm& form);

// Returns the candidate nearest to a word by edit distance, the first of ties; empty if none is.
[[nodiscard]] std::string_view nearest(std::string_view word,
                                       std::span<const std::string_view> candidates);

}  // namespace isentrope
