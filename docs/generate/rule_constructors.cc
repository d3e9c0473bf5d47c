// The constructors of ScaleRule in Python, one for each rule of the catalogue.

#include <fmt/core.h>

#include <cmath>

#include "docs/generate/tables.h"
#include "isentrope/rule_catalogue.h"
#include "src/rules/number_text.h"

namespace isentrope::docs {
namespace {

constexpr std::size_t kLongestLine = 120;

std::string type_of(ParameterKind kind) {
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
std::string python_name(std::string_view name) {
  return std::string(name) + (name == "lambda" ? "_" : "");
}

std::string default_of(const RuleParameter& parameter) {
  if (std::isnan(parameter.fallback)) return "";
  if (parameter.kind == ParameterKind::growth)
    return " = \"" + growth_name(static_cast<Growth>(parameter.fallback)) + '"';
  const std::string number = number_text(parameter.fallback);
  return " = " + (std::isinf(parameter.fallback) ? "float(\"" + number + "\")" : number);
}

std::string declaration(const RuleInfo& rule) {
  std::string line = fmt::format("    def {}(", rule.name), lines = line + "\n";
  for (const RuleParameter& parameter : rule.parameters) {
    const std::string text =
        python_name(parameter.name) + ": " + type_of(parameter.kind) + default_of(parameter);
    line += text + ", ";
    lines += "        " + text + ",\n";
  }
  line += "**policy: Any) -> ScaleRule:\n";
  return line.size() <= kLongestLine ? line
                                     : lines + "        **policy: Any,\n    ) -> ScaleRule:\n";
}

std::string constructor(const RuleInfo& rule) {
  std::string arguments;
  for (const RuleParameter& parameter : rule.parameters) {
    arguments += fmt::format("{}\"{}\": {}", arguments.empty() ? "" : ", ", parameter.name,
                             python_name(parameter.name));
  }
  std::string made =
      fmt::format("        return _make(\"{}\", {{{}}}, policy)\n", rule.name, arguments);
  if (made.size() > kLongestLine) {
    made =
        fmt::format("        arguments = {{{}}}\n        return _make(\"{}\", arguments, policy)\n",
                    arguments, rule.name);
  }
  const std::string counts =
      rule.counts.empty() ? "" : fmt::format("        length={}.\n", rule.counts);
  return fmt::format("    @staticmethod\n{}        \"\"\"{}\n\n        {}.\n{}        \"\"\"\n{}\n",
                     declaration(rule), rule.formula, rule.source, counts, made);
}

}  // namespace

std::map<std::string, std::string> rule_constructors() {
  std::string text;
  for (const RuleInfo& rule : rule_catalogue()) text += constructor(rule);
  return {{"rule-constructors", text + "    # "}};
}

}  // namespace isentrope::docs
