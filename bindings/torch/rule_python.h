// A rule's constructor as Python knows it, from the catalogue: for the operators, and for the
// declarations that rule_stub.cc writes.
#pragma once

#include <string>
#include <string_view>

#include "isentrope/rule_catalogue.h"
#include "src/rules/number_text.h"

namespace isentrope {

inline std::string_view python_type(ParameterKind kind) {
  switch (kind) {
    case ParameterKind::per_head:
      return "PerHead";
    case ParameterKind::list:
    case ParameterKind::lists:
      return "Sequence[float]";
    case ParameterKind::growth:
      return "str";
    case ParameterKind::number:
    case ParameterKind::length:
    case ParameterKind::heads:
      break;
  }
  return "float";
}

// Appends an underscore to Python's keywords, as in the rest of the package.
inline std::string python_name(std::string_view name) {
  return std::string(name) + (name == "lambda" ? "_" : "");
}

inline std::string default_text(const RuleParameter& parameter) {
  return parameter.kind == ParameterKind::growth
             ? growth_name(static_cast<Growth>(parameter.fallback))
             : number_text(parameter.fallback);
}

// Returns the docstring of a rule's constructor: formula, source, and which length n counts.
inline std::string description_of(const RuleInfo& rule) {
  std::string text = std::string(rule.formula) + "\n\n" + std::string(rule.source) + ".\n";
  if (!rule.counts.empty()) text += "length=" + std::string(rule.counts) + ".\n";
  return text;
}

}  // namespace isentrope
